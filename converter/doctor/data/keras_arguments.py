"""What classes of Keras 3 and tf_keras take by name: their loaders refuse the rest.

Made by fixtures/doctor/make_tables.py; not edited by hand.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class Accepted(NamedTuple):
    """Arguments that a class takes, and those of them that it must be given."""

    names: frozenset[str]
    required: frozenset[str]


Arguments: TypeAlias = Mapping[str, Accepted]


def _table(shared: str, rows: str) -> Arguments:
    """Return a table: ``Class: argument required!``; ``Class*`` takes the shared ones, too."""
    found: dict[str, Accepted] = {}
    name = ""
    for word in rows.split():
        if word.endswith(":"):
            name = word.rstrip(":*")
            base = shared.split() if word.endswith("*:") else ()
            found[name] = Accepted(frozenset(base), frozenset())
        else:
            names, required = found[name]
            argument = word.rstrip("!")
            needed = required | {argument} if word.endswith("!") else required
            found[name] = Accepted(names | {argument}, needed)
    return found


# fmt: off
# Layers of keras 3.15.1, as its legacy loader finds them.
KERAS_3: Arguments = _table(
    """
    activity_regularizer autocast dtype input_dim input_shape name trainable
    """,
    """
    Activation*: activation!
    ActivityRegularization*: l1 l2
    AdaptiveAveragePooling1D*: data_format output_size!
    AdaptiveAveragePooling2D*: data_format output_size!
    AdaptiveAveragePooling3D*: data_format output_size!
    AdaptiveMaxPooling1D*: data_format output_size!
    AdaptiveMaxPooling2D*: data_format output_size!
    AdaptiveMaxPooling3D*: data_format output_size!
    Add*:
    AdditiveAttention*: dropout score_mode seed use_scale
    AlphaDropout*: noise_shape rate! seed
    Attention*: dropout score_mode seed use_scale
    AugMix*: all_ops alpha bounding_box_format chain_depth data_format factor interpolation
        num_chains seed value_range
    AutoContrast*: bounding_box_format data_format factor value_range
    Average*:
    AveragePooling1D*: data_format padding pool_dimensions pool_mode pool_size! strides
    AveragePooling2D*: data_format padding pool_dimensions pool_mode pool_size! strides
    AveragePooling3D*: data_format padding pool_dimensions pool_mode pool_size! strides
    BatchNormalization*: axis beta_constraint beta_initializer beta_regularizer center epsilon
        gamma_constraint gamma_initializer gamma_regularizer momentum moving_mean_initializer
        moving_variance_initializer renorm renorm_clipping renorm_momentum scale synchronized
    Bidirectional*: backward_layer layer! merge_mode weights
    CategoryEncoding*: num_tokens output_mode sparse
    CenterCrop*: bounding_box_format data_format factor height! width!
    Concatenate*: axis
    ContrastLimitedAdaptiveHistogramEqualization*: bounding_box_format clip_limit data_format
        factor tile_grid_size value_range
    Conv1D*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! lora_alpha lora_rank padding rank strides use_bias
    Conv1DTranspose*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! output_padding padding rank strides use_bias
    Conv2D*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! lora_alpha lora_rank padding rank strides use_bias
    Conv2DTranspose*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! output_padding padding rank strides use_bias
    Conv3D*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! lora_alpha lora_rank padding rank strides use_bias
    Conv3DTranspose*: activation bias_constraint bias_initializer bias_regularizer data_format
        dilation_rate filters! kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! output_padding padding rank strides use_bias
    ConvLSTM1D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer return_sequences
        return_state seed stateful strides unit_forget_bias unroll use_bias zero_output_for_mask
    ConvLSTM2D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer return_sequences
        return_state seed stateful strides unit_forget_bias unroll use_bias zero_output_for_mask
    ConvLSTM3D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer return_sequences
        return_state seed stateful strides unit_forget_bias unroll use_bias zero_output_for_mask
    Cropping1D*: cropping
    Cropping2D*: cropping data_format
    Cropping3D*: cropping data_format
    CutMix*: bounding_box_format data_format factor seed
    Dense*: activation bias_constraint bias_initializer bias_regularizer kernel_constraint
        kernel_initializer kernel_regularizer lora_alpha lora_rank quantization_config units!
        use_bias
    DepthwiseConv1D*: activation bias_constraint bias_initializer bias_regularizer data_format
        depth_multiplier depthwise_constraint depthwise_initializer depthwise_regularizer
        dilation_rate kernel_size! padding rank strides use_bias
    DepthwiseConv2D*: activation bias_constraint bias_initializer bias_regularizer data_format
        depth_multiplier depthwise_constraint depthwise_initializer depthwise_regularizer
        dilation_rate kernel_size! padding rank strides use_bias
    Discretization: bin_boundaries dtype epsilon name num_bins output_mode sparse
    Dot*: axes! normalize
    Dropout*: noise_shape rate! seed
    ELU*: alpha
    EinsumDense*: activation bias_axes bias_constraint bias_initializer bias_regularizer
        equation! gptq_unpacked_column_size kernel_constraint kernel_initializer
        kernel_regularizer lora_alpha lora_rank output_shape! quantization_config
    Embedding*: embeddings_constraint embeddings_initializer embeddings_regularizer input_length
        lora_alpha lora_rank mask_zero output_dim! quantization_config weights
    Equalization*: bins bounding_box_format data_format factor value_range
    Flatten*: data_format
    Functional: inputs! name outputs! trainable
    GRU*: activation bias_constraint bias_initializer bias_regularizer cell dropout go_backwards
        implementation kernel_constraint kernel_initializer kernel_regularizer
        recurrent_activation recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer reset_after return_sequences return_state seed stateful units!
        unroll use_bias use_cudnn zero_output_for_mask
    GRUCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        implementation kernel_constraint kernel_initializer kernel_regularizer
        recurrent_activation recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer reset_after seed units! use_bias
    GaussianDropout*: rate! seed
    GaussianNoise*: seed stddev!
    GlobalAveragePooling1D*: data_format keepdims pool_dimensions
    GlobalAveragePooling2D*: data_format keepdims pool_dimensions
    GlobalAveragePooling3D*: data_format keepdims pool_dimensions
    GlobalMaxPooling1D*: data_format keepdims pool_dimensions
    GlobalMaxPooling2D*: data_format keepdims pool_dimensions
    GlobalMaxPooling3D*: data_format keepdims pool_dimensions
    GroupNormalization*: axis beta_constraint beta_initializer beta_regularizer center epsilon
        gamma_constraint gamma_initializer gamma_regularizer groups scale
    GroupedQueryAttention*: bias_constraint bias_initializer bias_regularizer dropout
        flash_attention head_dim! kernel_constraint kernel_initializer kernel_regularizer
        num_key_value_heads! num_query_heads! seed sliding_window use_bias use_gate
    HashedCrossing*: num_bins! output_mode sparse
    Hashing*: mask_value num_bins! output_mode salt sparse
    Identity*:
    IndexLookup*: has_input_vocabulary idf_weights invert mask_token! max_tokens!
        num_oov_indices! oov_method oov_token! output_mode pad_to_max_tokens salt sparse
        vocabulary vocabulary_dtype! vocabulary_size
    InputLayer*: batch_input_shape batch_shape batch_size input_tensor optional ragged shape
        sparse
    InputSpec: allow_last_axis_squeeze axes dtype max_ndim min_ndim name ndim optional shape
    IntegerLookup*: has_input_vocabulary idf_weights invert mask_token max_tokens
        num_oov_indices oov_method oov_token output_mode pad_to_max_tokens salt sparse
        vocabulary vocabulary_dtype vocabulary_size
    LSTM*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        go_backwards implementation kernel_constraint kernel_initializer kernel_regularizer
        recurrent_activation recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer return_sequences return_state seed stateful unit_forget_bias
        units! unroll use_bias use_cudnn zero_output_for_mask
    LSTMCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        implementation kernel_constraint kernel_initializer kernel_regularizer
        recurrent_activation recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer seed unit_forget_bias units! use_bias
    Lambda*: arguments function! mask output_shape
    LayerNormalization*: axis beta_constraint beta_initializer beta_regularizer center epsilon
        gamma_constraint gamma_initializer gamma_regularizer rms_scaling scale
    LeakyReLU*: alpha negative_slope
    Masking*: mask_value
    MaxNumBoundingBoxes*: bounding_box_format data_format factor fill_value max_number!
    MaxPooling1D*: data_format padding pool_dimensions pool_mode pool_size strides
    MaxPooling2D*: data_format padding pool_dimensions pool_mode pool_size strides
    MaxPooling3D*: data_format padding pool_dimensions pool_mode pool_size strides
    Maximum*:
    MelSpectrogram*: fft_length mag_exp max_freq min_freq min_power num_mel_bins power_to_db
        ref_power sampling_rate sequence_length sequence_stride top_db window
    Minimum*:
    MixUp*: alpha bounding_box_format data_format factor seed
    Model:
    MultiHeadAttention*: attention_axes bias_constraint bias_initializer bias_regularizer
        dropout flash_attention kernel_constraint kernel_initializer kernel_regularizer key_dim!
        num_heads! output_shape seed sliding_window use_bias use_gate value_dim
    Multiply*:
    Normalization*: axis invert mean variance
    PReLU*: alpha_constraint alpha_initializer alpha_regularizer shared_axes
    Permute*: dims!
    Pipeline: layers! name
    RMSNormalization*: axis epsilon
    RNN*: cell! go_backwards return_sequences return_state stateful unroll zero_output_for_mask
    RandAugment*: bounding_box_format data_format factor interpolation num_ops seed value_range
    RandomBrightness*: bounding_box_format data_format factor! seed value_range
    RandomColorDegeneration*: bounding_box_format data_format factor! seed value_range
    RandomColorJitter*: bounding_box_format brightness_factor contrast_factor data_format factor
        hue_factor saturation_factor seed value_range
    RandomContrast*: bounding_box_format data_format factor! seed value_range
    RandomCrop*: bounding_box_format data_format factor height! seed width!
    RandomElasticTransform*: bounding_box_format data_format factor fill_mode fill_value
        interpolation scale seed value_range
    RandomErasing*: bounding_box_format data_format factor fill_value scale seed value_range
    RandomFlip*: bounding_box_format data_format factor mode seed
    RandomGaussianBlur*: bounding_box_format data_format factor kernel_size seed sigma
        value_range
    RandomGrayscale*: bounding_box_format data_format factor seed
    RandomHue*: bounding_box_format data_format factor! seed value_range
    RandomInvert*: bounding_box_format data_format factor seed value_range
    RandomPerspective*: bounding_box_format data_format factor fill_value interpolation scale
        seed
    RandomPosterization*: bounding_box_format data_format factor! seed value_range
    RandomRotation*: bounding_box_format data_format factor! fill_mode fill_value interpolation
        seed
    RandomSaturation*: bounding_box_format data_format factor! seed value_range
    RandomSharpness*: bounding_box_format data_format factor! seed value_range
    RandomShear*: bounding_box_format data_format factor fill_mode fill_value interpolation seed
        x_factor y_factor
    RandomTranslation*: bounding_box_format data_format factor fill_mode fill_value
        height_factor! interpolation seed width_factor!
    RandomZoom*: bounding_box_format data_format factor fill_mode fill_value height_factor!
        interpolation seed width_factor
    ReLU*: max_value negative_slope threshold
    RepeatVector*: n!
    Rescaling*: offset scale!
    Reshape*: target_shape!
    Resizing*: antialias bounding_box_format crop_to_aspect_ratio data_format factor fill_mode
        fill_value height! interpolation pad_to_aspect_ratio width!
    ReversibleEmbedding*: embeddings_constraint embeddings_initializer embeddings_regularizer
        input_length logit_soft_cap lora_alpha lora_rank mask_zero output_dim!
        quantization_config reverse_dtype tie_weights weights
    STFTSpectrogram*: data_format expand_dims fft_length frame_length frame_step mode padding
        periodic scaling window
    SeparableConv1D*: activation bias_constraint bias_initializer bias_regularizer data_format
        depth_multiplier depthwise_constraint depthwise_initializer depthwise_regularizer
        dilation_rate filters! kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    SeparableConv2D*: activation bias_constraint bias_initializer bias_regularizer data_format
        depth_multiplier depthwise_constraint depthwise_initializer depthwise_regularizer
        dilation_rate filters! kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    Sequential: layers name trainable
    SimpleRNN*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        go_backwards kernel_constraint kernel_initializer kernel_regularizer
        recurrent_constraint recurrent_dropout recurrent_initializer recurrent_regularizer
        return_sequences return_state seed stateful units! unroll use_bias zero_output_for_mask
    SimpleRNNCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        kernel_constraint kernel_initializer kernel_regularizer recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer seed units! use_bias
    Softmax*: axis
    Solarization*: addition_factor bounding_box_format data_format factor seed threshold_factor
        value_range
    SpatialDropout1D: dtype name rate! seed
    SpatialDropout2D: data_format dtype name rate! seed
    SpatialDropout3D: data_format dtype name rate! seed
    SpectralNormalization*: layer! power_iterations
    StackedRNNCells*: cells!
    StringLookup*: encoding has_input_vocabulary idf_weights invert mask_token max_tokens
        num_oov_indices oov_method oov_token output_mode pad_to_max_tokens salt sparse
        vocabulary vocabulary_dtype vocabulary_size
    Subtract*:
    TextVectorization*: encoding has_input_vocabulary idf_weights max_tokens ngrams output_mode
        output_sequence_length pad_to_max_tokens ragged sparse split standardize vocabulary
        vocabulary_size
    TimeDistributed*: layer!
    UnitNormalization*: axis
    UpSampling1D*: size
    UpSampling2D*: data_format interpolation size
    UpSampling3D*: data_format size
    Wrapper*: layer!
    ZeroPadding1D*: data_format padding
    ZeroPadding2D*: data_format padding
    ZeroPadding3D*: data_format padding
    """,
)
# Layers of tf_keras 2.21.0.
TF_KERAS: Arguments = _table(
    """
    activity_regularizer autocast batch_input_shape batch_size dtype dynamic implementation
    input_dim input_shape name trainable weights
    """,
    """
    AbstractRNNCell*:
    Activation*: activation!
    ActivityRegularization*: l1 l2
    Add*:
    AddLoss*: unconditional!
    AddMetric*: aggregation metric_name
    AdditiveAttention*: causal dropout force_generator rng_type seed use_scale
    AlphaDropout*: force_generator noise_shape rate! rng_type seed
    Attention*: causal dropout force_generator rng_type score_mode seed use_scale
    Average*:
    AveragePooling1D*: data_format padding pool_function pool_size strides
    AveragePooling2D*: data_format padding pool_function pool_size strides
    AveragePooling3D*: data_format padding pool_function pool_size strides
    AvgPool1D*: data_format padding pool_function pool_size strides
    AvgPool2D*: data_format padding pool_function pool_size strides
    AvgPool3D*: data_format padding pool_function pool_size strides
    BaseRandomLayer*: force_generator rng_type seed
    BatchNormalization*: adjustment axis beta_constraint beta_initializer beta_regularizer
        center epsilon fused gamma_constraint gamma_initializer gamma_regularizer momentum
        moving_mean_initializer moving_variance_initializer renorm renorm_clipping
        renorm_momentum scale synchronized virtual_batch_size
    BatchNormalizationBase*: adjustment axis beta_constraint beta_initializer beta_regularizer
        center epsilon fused gamma_constraint gamma_initializer gamma_regularizer momentum
        moving_mean_initializer moving_variance_initializer renorm renorm_clipping
        renorm_momentum scale synchronized virtual_batch_size
    BatchNormalizationV1*: adjustment axis beta_constraint beta_initializer beta_regularizer
        center epsilon fused gamma_constraint gamma_initializer gamma_regularizer momentum
        moving_mean_initializer moving_variance_initializer renorm renorm_clipping
        renorm_momentum scale synchronized virtual_batch_size
    BatchNormalizationV2*: adjustment axis beta_constraint beta_initializer beta_regularizer
        center epsilon fused gamma_constraint gamma_initializer gamma_regularizer momentum
        moving_mean_initializer moving_variance_initializer renorm renorm_clipping
        renorm_momentum scale synchronized virtual_batch_size
    Bidirectional*: backward_layer layer! merge_mode
    CategoryEncoding*: max_tokens num_tokens output_mode sparse
    CenterCrop*: height! width!
    ClassMethod*: cls_ref! method_name!
    Concatenate*: axis
    Conv1D*: activation bias_constraint bias_initializer bias_regularizer conv_op data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! padding rank strides use_bias
    Conv1DTranspose*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    Conv2D*: activation bias_constraint bias_initializer bias_regularizer conv_op data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! padding rank strides use_bias
    Conv2DTranspose*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    Conv3D*: activation bias_constraint bias_initializer bias_regularizer conv_op data_format
        dilation_rate filters! groups kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! padding rank strides use_bias
    Conv3DTranspose*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    ConvLSTM1D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer kernel_size! padding rank recurrent_activation
        recurrent_constraint recurrent_dropout recurrent_initializer recurrent_regularizer
        return_sequences return_state stateful strides time_major unit_forget_bias unroll
        use_bias zero_output_for_mask
    ConvLSTM2D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer kernel_size! padding rank recurrent_activation
        recurrent_constraint recurrent_dropout recurrent_initializer recurrent_regularizer
        return_sequences return_state stateful strides time_major unit_forget_bias unroll
        use_bias zero_output_for_mask
    ConvLSTM3D*: activation bias_constraint bias_initializer bias_regularizer cell data_format
        dilation_rate dropout filters! go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer kernel_size! padding rank recurrent_activation
        recurrent_constraint recurrent_dropout recurrent_initializer recurrent_regularizer
        return_sequences return_state stateful strides time_major unit_forget_bias unroll
        use_bias zero_output_for_mask
    Convolution1D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank strides use_bias
    Convolution1DTranspose*: activation bias_constraint bias_initializer bias_regularizer
        conv_op data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    Convolution2D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank strides use_bias
    Convolution2DTranspose*: activation bias_constraint bias_initializer bias_regularizer
        conv_op data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    Convolution3D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank strides use_bias
    Convolution3DTranspose*: activation bias_constraint bias_initializer bias_regularizer
        conv_op data_format dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! output_padding padding rank strides use_bias
    Cropping1D*: cropping
    Cropping2D*: cropping data_format
    Cropping3D*: cropping data_format
    CuDNNGRU*: bias_constraint bias_initializer bias_regularizer cell go_backwards input_length
        kernel_constraint kernel_initializer kernel_regularizer recurrent_constraint
        recurrent_initializer recurrent_regularizer return_sequences return_state stateful
        time_major units! unroll zero_output_for_mask
    CuDNNLSTM*: bias_constraint bias_initializer bias_regularizer cell go_backwards input_length
        kernel_constraint kernel_initializer kernel_regularizer recurrent_constraint
        recurrent_initializer recurrent_regularizer return_sequences return_state stateful
        time_major unit_forget_bias units! unroll zero_output_for_mask
    Dense*: activation bias_constraint bias_initializer bias_regularizer kernel_constraint
        kernel_initializer kernel_regularizer units! use_bias
    DenseFeatures*: expected_column_type feature_columns! partitioner
    DepthwiseConv1D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank strides use_bias
    DepthwiseConv2D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding rank strides use_bias
    DeviceWrapper*: cell! device!
    Discretization*: bin_boundaries bins epsilon num_bins output_mode sparse
    Dot*: axes! normalize
    Dropout*: force_generator noise_shape rate! rng_type seed
    DropoutWrapper*: cell! dropout_state_filter_visitor input_keep_prob input_size
        output_keep_prob seed state_keep_prob variational_recurrent
    ELU*: alpha
    EinsumDense*: activation bias_axes bias_constraint bias_initializer bias_regularizer
        equation! kernel_constraint kernel_initializer kernel_regularizer output_shape!
    Embedding*: embeddings_constraint embeddings_initializer embeddings_regularizer input_length
        mask_zero output_dim! sparse use_one_hot_matmul
    Flatten*: data_format
    Functional*: inputs! outputs! skip_init
    GRU*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device force_generator go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer reset_after return_runtime
        return_sequences return_state rng_type seed stateful time_major units! unroll use_bias
        zero_output_for_mask
    GRUCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer reset_after rng_type seed units! use_bias
    GRUCellV1*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer reset_after rng_type seed units! use_bias
    GRUCellV2*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer reset_after rng_type seed units! use_bias
    GRUV1*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device go_backwards input_length kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer reset_after return_sequences return_state
        stateful time_major units! unroll use_bias zero_output_for_mask
    GRUV2*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device force_generator go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer reset_after return_runtime
        return_sequences return_state rng_type seed stateful time_major units! unroll use_bias
        zero_output_for_mask
    GaussianDropout*: force_generator rate! rng_type seed
    GaussianNoise*: force_generator rng_type seed stddev!
    GlobalAveragePooling1D*: data_format keepdims
    GlobalAveragePooling2D*: data_format keepdims
    GlobalAveragePooling3D*: data_format keepdims
    GlobalAvgPool1D*: data_format keepdims
    GlobalAvgPool2D*: data_format keepdims
    GlobalAvgPool3D*: data_format keepdims
    GlobalMaxPool1D*: data_format keepdims
    GlobalMaxPool2D*: data_format keepdims
    GlobalMaxPool3D*: data_format keepdims
    GlobalMaxPooling1D*: data_format keepdims
    GlobalMaxPooling2D*: data_format keepdims
    GlobalMaxPooling3D*: data_format keepdims
    GroupNormalization*: axis beta_constraint beta_initializer beta_regularizer center epsilon
        gamma_constraint gamma_initializer gamma_regularizer groups scale
    HashedCrossing*: num_bins! output_mode sparse
    Hashing*: mask_value num_bins! output_mode salt sparse
    Identity*:
    InputLayer*: input_tensor optional ragged sparse type_spec
    InputSpec: allow_last_axis_squeeze axes dtype max_ndim min_ndim name ndim optional shape
    InstanceMethod*: attr_name!
    InstanceProperty*: attr_name!
    IntegerLookup*: has_input_vocabulary has_static_table idf_weights invert mask_token
        mask_value max_tokens max_values num_oov_indices oov_token oov_value output_mode
        pad_to_max_tokens sparse vocabulary vocabulary_dtype vocabulary_size
    LSTM*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device force_generator go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer return_runtime
        return_sequences return_state rng_type seed stateful time_major unit_forget_bias units!
        unroll use_bias zero_output_for_mask
    LSTMCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer rng_type seed unit_forget_bias units!
        use_bias
    LSTMCellV1*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer rng_type seed unit_forget_bias units!
        use_bias
    LSTMCellV2*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer rng_type seed unit_forget_bias units!
        use_bias
    LSTMV1*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device go_backwards input_length kernel_constraint kernel_initializer
        kernel_regularizer recurrent_activation recurrent_constraint recurrent_dropout
        recurrent_initializer recurrent_regularizer return_sequences return_state stateful
        time_major unit_forget_bias units! unroll use_bias zero_output_for_mask
    LSTMV2*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device force_generator go_backwards input_length kernel_constraint
        kernel_initializer kernel_regularizer recurrent_activation recurrent_constraint
        recurrent_dropout recurrent_initializer recurrent_regularizer return_runtime
        return_sequences return_state rng_type seed stateful time_major unit_forget_bias units!
        unroll use_bias zero_output_for_mask
    Lambda*: arguments function! mask output_shape
    LayerNormalization*: axis beta_constraint beta_initializer beta_regularizer center epsilon
        gamma_constraint gamma_initializer gamma_regularizer scale
    LeakyReLU*: alpha
    LinearModel*: activation bias_initializer bias_regularizer kernel_initializer
        kernel_regularizer units use_bias
    LocallyConnected1D*: activation bias_constraint bias_initializer bias_regularizer
        data_format filters! kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! padding strides use_bias
    LocallyConnected2D*: activation bias_constraint bias_initializer bias_regularizer
        data_format filters! kernel_constraint kernel_initializer kernel_regularizer
        kernel_size! padding strides use_bias
    Masking*: mask_value
    MaxPool1D*: data_format padding pool_function pool_size strides
    MaxPool2D*: data_format padding pool_function pool_size strides
    MaxPool3D*: data_format padding pool_function pool_size strides
    MaxPooling1D*: data_format padding pool_function pool_size strides
    MaxPooling2D*: data_format padding pool_function pool_size strides
    MaxPooling3D*: data_format padding pool_function pool_size strides
    Maximum*:
    Minimum*:
    Model*:
    MultiHeadAttention*: attention_axes bias_constraint bias_initializer bias_regularizer
        dropout kernel_constraint kernel_initializer kernel_regularizer key_dim! num_heads!
        output_shape softmax_robust_masking use_bias value_dim
    Multiply*:
    Normalization*: axis invert mean variance
    PReLU*: alpha_constraint alpha_initializer alpha_regularizer shared_axes
    Permute*: dims!
    RNN*: cell! go_backwards input_length return_sequences return_state stateful time_major
        unroll zero_output_for_mask
    RandomBrightness*: factor! force_generator rng_type seed value_range
    RandomContrast*: factor! force_generator rng_type seed
    RandomCrop*: force_generator height! rng_type seed width!
    RandomFlip*: force_generator mode rng_type seed
    RandomHeight*: factor! force_generator interpolation rng_type seed
    RandomRotation*: factor! fill_mode fill_value force_generator interpolation rng_type seed
    RandomTranslation*: fill_mode fill_value force_generator height_factor! interpolation
        rng_type seed width_factor!
    RandomWidth*: factor! force_generator interpolation rng_type seed
    RandomZoom*: fill_mode fill_value force_generator height_factor! interpolation rng_type seed
        width_factor
    ReLU*: max_value negative_slope threshold
    RepeatVector*: n!
    Rescaling*: offset scale!
    Reshape*: target_shape!
    ResidualWrapper*: cell! residual_fn
    Resizing*: crop_to_aspect_ratio height! interpolation width!
    SeparableConv1D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    SeparableConv2D*: activation bias_constraint bias_initializer bias_regularizer conv_op
        data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    SeparableConvolution1D*: activation bias_constraint bias_initializer bias_regularizer
        conv_op data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    SeparableConvolution2D*: activation bias_constraint bias_initializer bias_regularizer
        conv_op data_format depth_multiplier depthwise_constraint depthwise_initializer
        depthwise_regularizer dilation_rate filters! groups kernel_constraint kernel_initializer
        kernel_regularizer kernel_size! padding pointwise_constraint pointwise_initializer
        pointwise_regularizer rank strides use_bias
    SequenceFeatures*: expected_column_type feature_columns! partitioner
    Sequential: layers name
    SimpleRNN*: activation bias_constraint bias_initializer bias_regularizer cell dropout
        enable_caching_device go_backwards input_length kernel_constraint kernel_initializer
        kernel_regularizer recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer return_sequences return_state stateful time_major units! unroll
        use_bias zero_output_for_mask
    SimpleRNNCell*: activation bias_constraint bias_initializer bias_regularizer dropout
        enable_caching_device force_generator kernel_constraint kernel_initializer
        kernel_regularizer recurrent_constraint recurrent_dropout recurrent_initializer
        recurrent_regularizer rng_type seed units! use_bias
    SlicingOpLambda*: function!
    Softmax*: axis robust_masking
    SpatialDropout1D*: force_generator noise_shape rate! rng_type seed
    SpatialDropout2D*: data_format force_generator noise_shape rate! rng_type seed
    SpatialDropout3D*: data_format force_generator noise_shape rate! rng_type seed
    StackedRNNCells*: cells! reverse_state_order
    StringLookup*: encoding has_input_vocabulary has_static_table idf_weights invert mask_token
        max_tokens num_oov_indices oov_token output_mode pad_to_max_tokens sparse vocabulary
        vocabulary_dtype vocabulary_size
    Subtract*:
    SyncBatchNormalization*: adjustment axis beta_constraint beta_initializer beta_regularizer
        center epsilon fused gamma_constraint gamma_initializer gamma_regularizer momentum
        moving_mean_initializer moving_variance_initializer renorm renorm_clipping
        renorm_momentum scale synchronized virtual_batch_size
    TFOpLambda*: function!
    TensorFlowOpLayer: constants dtype name! node_def! trainable
    TextVectorization*: encoding has_input_vocabulary idf_weights max_tokens ngrams output_mode
        output_sequence_length pad_to_max_tokens ragged sparse split standardize vocabulary
        vocabulary_size
    ThresholdedReLU*: theta
    TimeDistributed*: layer!
    UnitNormalization*: axis
    UpSampling1D*: size
    UpSampling2D*: data_format interpolation size
    UpSampling3D*: data_format size
    WideDeepModel*: activation dnn_model! linear_model!
    Wrapper*: layer!
    ZeroPadding1D*: padding
    ZeroPadding2D*: data_format padding
    ZeroPadding3D*: data_format padding
    """,
)
# Initializers, regularizers and constraints of keras 3.15.1.
KERAS_3_OBJECTS: Arguments = _table(
    """
    """,
    """
    Constant: value
    GlorotNormal: input_axes output_axes seed
    GlorotUniform: input_axes output_axes seed
    HeNormal: input_axes output_axes seed
    HeUniform: input_axes output_axes seed
    Identity: gain
    IdentityInitializer: gain
    Initializer:
    LecunNormal: input_axes output_axes seed
    LecunUniform: input_axes output_axes seed
    Ones:
    Orthogonal: gain seed
    OrthogonalInitializer: gain seed
    RandomNormal: mean seed stddev
    RandomUniform: maxval minval seed
    STFT: periodic scaling side window
    STFTInitializer: periodic scaling side window
    TruncatedNormal: mean seed stddev
    VarianceScaling: distribution input_axes mode output_axes scale seed
    Zeros:
    L1: l1
    L1L2: l1 l2
    L2: l2
    OrthogonalRegularizer: factor mode
    Regularizer:
    Constraint:
    MaxNorm: axis max_value
    MinMaxNorm: axis max_value min_value rate
    NonNeg:
    UnitNorm: axis
    """,
)
# Initializers, regularizers and constraints of tf_keras 2.21.0.
TF_KERAS_OBJECTS: Arguments = _table(
    """
    """,
    """
    Constant: value
    GlorotNormal: seed
    GlorotUniform: seed
    HeNormal: seed
    HeUniform: seed
    Identity: gain
    Initializer:
    LecunNormal: seed
    LecunUniform: seed
    Ones:
    Orthogonal: gain seed
    RandomNormal: mean seed stddev
    RandomUniform: maxval minval seed
    TruncatedNormal: mean seed stddev
    VarianceScaling: distribution mode scale seed
    Zeros:
    L1: l l1
    L1L2: l1 l2
    L2: l l2
    OrthogonalRegularizer: factor mode
    Regularizer:
    Constraint:
    MaxNorm: axis max_value
    MinMaxNorm: axis max_value min_value rate
    NonNeg:
    RadialConstraint:
    UnitNorm: axis
    """,
)
# Names that configurations have for classes of tf_keras -> what the class calls itself.
TF_KERAS_ALIASES: Mapping[str, str] = {
    "AvgPool1D": "AveragePooling1D",
    "AvgPool2D": "AveragePooling2D",
    "AvgPool3D": "AveragePooling3D",
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "Convolution1D": "Conv1D",
    "Convolution1DTranspose": "Conv1DTranspose",
    "Convolution2D": "Conv2D",
    "Convolution2DTranspose": "Conv2DTranspose",
    "Convolution3D": "Conv3D",
    "Convolution3DTranspose": "Conv3DTranspose",
    "GRUCellV1": "GRUCell",
    "GRUCellV2": "GRUCell",
    "GRUV1": "GRU",
    "GRUV2": "GRU",
    "GlobalAvgPool1D": "GlobalAveragePooling1D",
    "GlobalAvgPool2D": "GlobalAveragePooling2D",
    "GlobalAvgPool3D": "GlobalAveragePooling3D",
    "GlobalMaxPool1D": "GlobalMaxPooling1D",
    "GlobalMaxPool2D": "GlobalMaxPooling2D",
    "GlobalMaxPool3D": "GlobalMaxPooling3D",
    "LSTMCellV1": "LSTMCell",
    "LSTMCellV2": "LSTMCell",
    "LSTMV1": "LSTM",
    "LSTMV2": "LSTM",
    "MaxPool1D": "MaxPooling1D",
    "MaxPool2D": "MaxPooling2D",
    "MaxPool3D": "MaxPooling3D",
    "SeparableConvolution1D": "SeparableConv1D",
    "SeparableConvolution2D": "SeparableConv2D",
}
KERAS_3_ACTIVATIONS = frozenset(
    """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh
    leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink
    softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh
    tanh_shrink threshold
    """.split()  # noqa: SIM905 - names
)
TF_KERAS_ACTIVATIONS = frozenset(
    """
    elu exponential gelu hard_sigmoid linear mish relu selu sigmoid softmax softplus softsign
    swish tanh
    """.split()  # noqa: SIM905 - names
)
# fmt: on
