"""Names of the layer classes that any Keras version ships; all others are custom classes.

Old configurations name a class and no module, so this list is all there is to tell them apart.
Collected from ``dir(keras.layers)`` of Keras 1.2.2, 2.2.4 and 3.15.1 and tf_keras 2.21, with the
classes that only saving uses (operations turned into layers, models), and those that models of
keras.applications bring with them.
"""

LAYERS = frozenset(
    """
    AbstractRNNCell Activation ActivityRegularization AdaptiveAveragePooling1D
    AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D
    AdaptiveMaxPooling3D Add AdditiveAttention AlphaDropout AtrousConv1D AtrousConv2D
    AtrousConvolution1D AtrousConvolution2D Attention AugMix AutoContrast Average AveragePooling1D
    AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization
    BatchNormalizationV1 BatchNormalizationV2 Bidirectional CategoryEncoding CenterCrop ClassMethod
    Concatenate Container ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose
    Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM1DCell ConvLSTM2D
    ConvLSTM2DCell ConvLSTM3D ConvLSTM3DCell ConvLSTMCell ConvRNN2D ConvRecurrent2D Convolution1D
    Convolution1DTranspose Convolution2D Convolution2DTranspose Convolution3D
    Convolution3DTranspose Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM CustomScaleLayer
    CutMix Deconv2D Deconv3D Deconvolution2D Deconvolution3D Dense DenseFeatures DepthwiseConv1D
    DepthwiseConv2D DepthwiseConvolution2D Discretization Dot Dropout ELU EinsumDense Embedding
    Equalization Flatten FlaxLayer Functional GRU GRUCell GRUCellV2 GRUV1 GRUV2 GaussianDropout
    GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D Graph GroupNormalization
    GroupQueryAttention GroupedQueryAttention HashedCrossing Hashing Highway Identity InputLayer
    InstanceMethod InstanceProperty IntegerLookup JaxLayer LSTM LSTMCell LSTMCellV2 LSTMV1 LSTMV2
    Lambda LambdaMerge LayerNormalization LayerScale LeakyReLU LinearModel LocallyConnected1D
    LocallyConnected2D Masking MaxNumBoundingBoxes MaxPool1D MaxPool2D MaxPool3D MaxPooling1D
    MaxPooling2D MaxPooling3D Maximum MaxoutDense MelSpectrogram Merge Minimum MixUp Model
    ModuleWrapper MultiHeadAttention Multiply Network Normalization PReLU ParametricSoftplus
    PeepholeLSTMCell Permute Pipeline PreprocessingLayer RMSNormalization RNN RandAugment
    RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop
    RandomElasticTransform RandomErasing RandomFlip RandomFourierFeatures RandomGaussianBlur
    RandomGrayscale RandomHeight RandomHue RandomInvert RandomPerspective RandomPosterization
    RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomWidth
    RandomZoom ReLU Recurrent RepeatVector Rescaling Reshape Resizing ReversibleEmbedding SReLU
    STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D SeparableConvolution2D
    Sequential Siamese SimpleRNN SimpleRNNCell SlicingOpLambda Softmax Solarization
    SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells
    StochasticDepth StringLookup Subtract SyncBatchNormalization TFOpLambda TFSMLayer
    TensorFlowOpLayer TextVectorization ThresholdedReLU TimeDistributed TimeDistributedDense
    TorchModuleWrapper UnitNormalization UpSampling1D UpSampling2D UpSampling3D WideDeepModel
    Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D
    """.split()  # noqa: SIM905 - a word each is what a person can read and compare
)

# What looks like a class of the author's, for Keras registers it as such.
REGISTERED = frozenset(("Custom>CustomScaleLayer",))
