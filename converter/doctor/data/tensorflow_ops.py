"""Every op that tensorflow 2.21.0 registers: it loads no graph that has another.

Made by fixtures/doctor/make_tables.py; not edited by hand.
"""

OPS = frozenset(
    """
    A Abort Abs AccumulateNV2 AccumulatorApplyGradient AccumulatorNumAccumulated
    AccumulatorSetGlobalStep AccumulatorTakeGradient Acos Acosh Add AddManySparseToTensorsMap
    AddN AddSparseToTensorsMap AddV2 AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation
    All AllCandidateSampler AllToAll Angle AnonymousHashTable AnonymousIterator
    AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMemoryCache AnonymousMultiDeviceIterator
    AnonymousMultiDeviceIteratorV3 AnonymousMutableDenseHashTable AnonymousMutableHashTable
    AnonymousMutableHashTableOfTensors AnonymousRandomSeedGenerator AnonymousSeedGenerator Any
    ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign
    ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign
    ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp ApproxTopK ApproximateEqual
    ArgMax ArgMin AsString Asin Asinh Assert AssertCardinalityDataset AssertNextDataset
    AssertPrevDataset Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp
    AssignVariableOp AssignVariableXlaConcatND Atan Atan2 Atanh Attr AttrBool AttrBoolList
    AttrDefault AttrEmptyListDefault AttrEnum AttrEnumList AttrFloat AttrListDefault AttrListMin
    AttrListTypeDefault AttrMin AttrPartialShape AttrPartialShapeList AttrShape AttrShapeList
    AttrTypeDefault AudioMicrofrontend AudioSpectrogram AudioSummary AudioSummaryV2
    AutoShardDataset AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad B BandedTriangularSolve Barrier
    BarrierClose BarrierIncompleteSize BarrierInsertMany BarrierReadySize BarrierTakeMany Batch
    BatchCholesky BatchCholeskyGrad BatchDataset BatchDatasetV2 BatchFFT BatchFFT2D BatchFFT3D
    BatchFunction BatchIFFT BatchIFFT2D BatchIFFT3D BatchMatMul BatchMatMulV2 BatchMatMulV3
    BatchMatrixBandPart BatchMatrixDeterminant BatchMatrixDiag BatchMatrixDiagPart
    BatchMatrixInverse BatchMatrixSetDiag BatchMatrixSolve BatchMatrixSolveLs
    BatchMatrixTriangularSolve BatchNormWithGlobalNormalization
    BatchNormWithGlobalNormalizationGrad BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd
    BatchToSpace BatchToSpaceND BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0
    BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc BiasAdd BiasAddGrad BiasAddV1 Binary
    Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor BlockLSTM BlockLSTMGrad BlockLSTMGradV2
    BlockLSTMV2 BoostedTreesAggregateStats BoostedTreesBucketize
    BoostedTreesCalculateBestFeatureSplit BoostedTreesCalculateBestFeatureSplitV2
    BoostedTreesCalculateBestGainsPerFeature BoostedTreesCenterBias BoostedTreesCreateEnsemble
    BoostedTreesCreateQuantileStreamResource BoostedTreesDeserializeEnsemble
    BoostedTreesEnsembleResourceHandleOp BoostedTreesExampleDebugOutputs
    BoostedTreesFlushQuantileSummaries BoostedTreesGetEnsembleStates
    BoostedTreesMakeQuantileSummaries BoostedTreesMakeStatsSummary BoostedTreesPredict
    BoostedTreesQuantileStreamResourceAddSummaries BoostedTreesQuantileStreamResourceDeserialize
    BoostedTreesQuantileStreamResourceFlush
    BoostedTreesQuantileStreamResourceGetBucketBoundaries
    BoostedTreesQuantileStreamResourceHandleOp BoostedTreesSerializeEnsemble
    BoostedTreesSparseAggregateStats BoostedTreesSparseCalculateBestFeatureSplit
    BoostedTreesTrainingPredict BoostedTreesUpdateEnsemble BoostedTreesUpdateEnsembleV2
    BroadcastArgs BroadcastGradientArgs BroadcastTo Bucketize BytesProducedStatsDataset
    CSRSparseMatrixComponents CSRSparseMatrixToDense CSRSparseMatrixToSparseTensor CSVDataset
    CSVDatasetV2 CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss CTCLossV2 CacheDataset
    CacheDatasetV2 CalibrationStatisticsSaver Case Cast Ceil CheckNumerics CheckNumericsV2
    CheckPinned Cholesky CholeskyGrad ChooseFastestBranchDataset ChooseFastestDataset
    ClipByValue CloseSummaryWriter CollateTPUEmbeddingMemory CollectiveAllToAllV2
    CollectiveAllToAllV3 CollectiveAssignGroupV2 CollectiveBcastRecv CollectiveBcastRecvV2
    CollectiveBcastSend CollectiveBcastSendV2 CollectiveGather CollectiveGatherV2
    CollectiveInitializeCommunicator CollectivePermute CollectiveReduce
    CollectiveReduceScatterV2 CollectiveReduceV2 CollectiveReduceV3 CombinedNonMaxSuppression
    Complex ComplexAbs ComplexStruct CompositeTensorVariantFromComponents
    CompositeTensorVariantToComponents CompressElement ComputeAccidentalHits ComputeBatchSize
    ComputeDedupDataSize ComputeDedupDataSizeV2 ComputeDedupDataTupleMask
    ComputeDedupDataTupleMaskV2 Concat ConcatOffset ConcatV2 ConcatenateDataset
    ConditionalAccumulator ConfigureAndInitializeGlobalTPU ConfigureDistributedTPU
    ConfigureTPUEmbedding ConfigureTPUEmbeddingHost ConfigureTPUEmbeddingMemory Conj
    ConjugateTranspose ConnectTPUEmbeddingHosts Const ConstructionFails ConsumeMutexLock
    ControlTrigger Conv Conv2D Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv2DBackpropInput
    Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput
    Conv3DBackpropInputV2 ConvertToCooTensor ConvertToListOfSparseCoreCooTensors
    ConvertToSparseCoreCsrWrappedCooTensor Copy CopyHost CopyOp CopyToMesh CopyToMeshGrad Cos
    Cosh CountUpTo CreateSummaryDbWriter CreateSummaryFileWriter CropAndResize
    CropAndResizeGradBoxes CropAndResizeGradImage Cross CrossReplicaSum CudnnRNN
    CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams
    CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNParamsToCanonical
    CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3 Cumprod Cumsum CumulativeLogsumexp
    CustomAggregator DTensorAllGather DTensorAllReduce DTensorAllScatter DTensorAllToAll
    DTensorReduceScatter DTensorRestoreV2 DTensorSetGlobalTPUArray DataFormatDimMap
    DataFormatVecPermute DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3
    DataServiceDatasetV4 DatasetCardinality DatasetFingerprint DatasetFromGraph DatasetToGraph
    DatasetToGraphV2 DatasetToSingleElement DatasetToTFRecord Dawsn DebugGradientIdentity
    DebugGradientRefIdentity DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount
    DebugNumericSummary DebugNumericSummaryV2 DecodeAndCropJpeg DecodeBase64 DecodeBmp DecodeCSV
    DecodeCompressed DecodeGif DecodeImage DecodeJSONExample DecodeJpeg DecodeJxl
    DecodePaddedRaw DecodePng DecodeProtoV2 DecodeRaw DecodeWav DecodeWebP DeepCopy DefaultAttrs
    DeleteIterator DeleteMemoryCache DeleteMultiDeviceIterator DeleteRandomSeedGenerator
    DeleteRpcFutureResource DeleteSeedGenerator DeleteSessionTensor DenseBincount
    DenseCountSparseOutput DenseToCSRSparseMatrix DenseToDenseSetOperation
    DenseToSparseBatchDataset DenseToSparseSetOperation DepthToSpace DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dequantize
    DeserializeIterator DeserializeManySparse DeserializeSparse DestroyResourceOp
    DestroyTemporaryVariable DeviceIndex DevicePlacementOp Diag DiagPart Digamma Dilation2D
    Dilation2DBackpropFilter Dilation2DBackpropInput DirectedInterleaveDataset DisableCopyOnRead
    DistributedSave Div DivNoNan DrawBoundingBoxes DrawBoundingBoxesV2 DtypeWithDefaultOp
    DummyIterationCounter DummyMemoryCache DummySeedGenerator DumpTensor
    DynamicEnqueueTPUEmbeddingArbitraryTensorBatch DynamicEnqueueTPUEmbeddingRaggedTensorBatch
    DynamicPartition DynamicStitch EagerPyFunc EditDistance Eig Einsum Elu EluGrad Empty
    EmptyTensorList EmptyTensorMap EncodeBase64 EncodeJpeg EncodeJpegVariableQuality EncodePng
    EncodeProto EncodeWav EnqueueTPUEmbeddingArbitraryTensorBatch EnqueueTPUEmbeddingBatch
    EnqueueTPUEmbeddingIntegerBatch EnqueueTPUEmbeddingRaggedTensorBatch
    EnqueueTPUEmbeddingSparseBatch EnqueueTPUEmbeddingSparseTensorBatch EnsureShape Enter Equal
    Erf Erfc Erfinv EuclideanNorm ExecuteTPUEmbeddingPartitioner Exit Exp ExpandDims
    ExperimentalAssertNextDataset ExperimentalAutoShardDataset
    ExperimentalBytesProducedStatsDataset ExperimentalCSVDataset
    ExperimentalChooseFastestDataset ExperimentalDatasetCardinality
    ExperimentalDatasetToTFRecord ExperimentalDenseToSparseBatchDataset
    ExperimentalDirectedInterleaveDataset ExperimentalGroupByReducerDataset
    ExperimentalGroupByWindowDataset ExperimentalIgnoreErrorsDataset
    ExperimentalIteratorGetDevice ExperimentalLMDBDataset ExperimentalLatencyStatsDataset
    ExperimentalMapAndBatchDataset ExperimentalMapDataset ExperimentalMatchingFilesDataset
    ExperimentalMaxIntraOpParallelismDataset ExperimentalNonSerializableDataset
    ExperimentalParallelInterleaveDataset ExperimentalParseExampleDataset
    ExperimentalPrivateThreadPoolDataset ExperimentalRandomDataset ExperimentalRebatchDataset
    ExperimentalScanDataset ExperimentalSetStatsAggregatorDataset ExperimentalSleepDataset
    ExperimentalSlidingWindowDataset ExperimentalSqlDataset ExperimentalStatsAggregatorHandle
    ExperimentalStatsAggregatorSummary ExperimentalTakeWhileDataset
    ExperimentalThreadPoolDataset ExperimentalThreadPoolHandle ExperimentalUnbatchDataset
    ExperimentalUniqueDataset Expint Expm1 ExtractGlimpse ExtractGlimpseV2 ExtractImagePatches
    ExtractJpegShape ExtractVolumePatches FFT FFT2D FFT3D FFTND FIFOQueue FIFOQueueV2 Fact
    FakeParam FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel
    FakeQuantWithMinMaxVarsPerChannelGradient FakeQueue FileSystemSetConfiguration Fill
    FilterByLastComponentDataset FilterDataset FinalizeDataset FinalizeTPUEmbedding
    FinalizeTPUEmbeddingV2 Fingerprint FiveFloatOutputs FixedLengthRecordDataset
    FixedLengthRecordDatasetV2 FixedLengthRecordReader FixedLengthRecordReaderV2
    FixedUnigramCandidateSampler FlatMapDataset FloatInput FloatOutput FloatOutputStringOutput
    Floor FloorDiv FloorMod FlushSummaryWriter Foo1 Foo2 Foo3 For FractionalAvgPool
    FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad FresnelCos FresnelSin FuncAttr
    FuncListAttr FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
    FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D GRUBlockCell
    GRUBlockCellGrad Gather GatherNd GatherV2 GenerateBoundingBoxProposals
    GenerateVocabRemapping GeneratorDataset GetDeadline GetElementAtIndex
    GetMinibatchSplitsWithPhysicalReplica GetMinibatchesInCsrWithPhysicalReplica GetOptions
    GetSessionHandle GetSessionHandleV2 GetSessionTensor GetStatsFromListOfSparseCoreCooTensors
    GetTpuTaskId GlobalIterId GlobalShuffleDataset GraphDefVersion Greater GreaterEqual
    GroupByReducerDataset GroupByWindowDataset GuaranteeConst HSVToRGB HashTable HashTableV2
    HistogramFixedWidth HistogramSummary HostConst IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D
    IRFFT3D IRFFTND Identity IdentityN IdentityReader IdentityReaderV2 If Igamma IgammaGradA
    Igammac IgnoreErrorsDataset Imag ImageProjectiveTransformV2 ImageProjectiveTransformV3
    ImageSummary ImmutableConst ImportEvent InPolymorphicTwice InTopK InTopKV2
    IndexFlatMapDataset InfeedDequeue InfeedDequeueTuple InfeedEnqueue
    InfeedEnqueuePrelinearizedBuffer InfeedEnqueueTuple InitializeTable
    InitializeTableFromDataset InitializeTableFromTextFile InitializeTableFromTextFileV2
    InitializeTableV2 InplaceAdd InplaceSub InplaceUpdate Int64Output IntAttr IntInput
    IntInputFloatInput IntInputIntOutput IntOutput IntOutputFloatOutput InterleaveDataset Inv
    InvGrad Invert InvertPermutation IsBoostedTreesEnsembleInitialized
    IsBoostedTreesQuantileStreamResourceInitialized IsFinite IsInf IsNan
    IsResourceHandleRefCounting IsTPUEmbeddingInitialized IsTensorFloat32Enabled
    IsVariableInitialized IsotonicRegression Iterator IteratorFromStringHandle
    IteratorFromStringHandleV2 IteratorGetDevice IteratorGetModelProto IteratorGetNext
    IteratorGetNextAsOptional IteratorGetNextSync IteratorToStringHandle IteratorV2
    KMC2ChainInitialization KernelLabel KernelLabelRequired KmeansPlusPlusInitialization
    KthOrderStatistic L2Loss LMDBDataset LMDBReader LRN LRNGrad LSTMBlockCell LSTMBlockCellGrad
    LatencyStatsDataset LeakyRelu LeakyReluGrad LearnedUnigramCandidateSampler LeftShift
    LegacyParallelInterleaveDatasetV2 Less LessEqual Lgamma LinSpace ListDataset ListDiff
    ListInput ListOutput ListSnapshotChunksDataset LoadAllTPUEmbeddingParameters
    LoadAndRemapMatrix LoadDataset LoadTPUEmbeddingADAMParameters
    LoadTPUEmbeddingAdadeltaParameters LoadTPUEmbeddingAdagradMomentumParameters
    LoadTPUEmbeddingAdagradParameters LoadTPUEmbeddingCenteredRMSPropParameters
    LoadTPUEmbeddingFTRLParameters LoadTPUEmbeddingFrequencyEstimatorParameters
    LoadTPUEmbeddingMDLAdagradLightParameters LoadTPUEmbeddingMomentumParameters
    LoadTPUEmbeddingProximalAdagradParameters LoadTPUEmbeddingProximalYogiParameters
    LoadTPUEmbeddingRMSPropParameters LoadTPUEmbeddingStochasticGradientDescentParameters Log
    Log1p LogMatrixDeterminant LogSoftmax LogUniformCandidateSampler LogicalAnd LogicalNot
    LogicalOr LookupTableExport LookupTableExportV2 LookupTableFind LookupTableFindV2
    LookupTableImport LookupTableImportV2 LookupTableInsert LookupTableInsertV2
    LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 LoopCond LowerBound Lu MakeIterator
    MakeUnique MakeWeakResourceHandle MapAndBatchDataset MapClear MapDataset MapDefun
    MapIncompleteSize MapPeek MapSize MapStage MapUnstage MapUnstageNoKey MatMul MatchingFiles
    MatchingFilesDataset MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixExponential MatrixInverse
    MatrixLogarithm MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixSolveLs
    MatrixSquareRoot MatrixTriangularSolve Max MaxIntraOpParallelismDataset MaxPool MaxPool3D
    MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad MaxPoolGradGradV2
    MaxPoolGradGradWithArgmax MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax
    Maximum Mean Merge MergeDedupData MergeSummary MergeV2Checkpoints Mfcc Min Minimum MirrorPad
    MirrorPadGrad MixedStruct MlirPassthroughOp Mod ModelDataset Mul MulNoNan
    MultiDeviceIterator MultiDeviceIteratorFromStringHandle MultiDeviceIteratorGetNextFromShard
    MultiDeviceIteratorInit MultiDeviceIteratorToStringHandle Multinomial MutableDenseHashTable
    MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
    MutableHashTableOfTensorsV2 MutableHashTableV2 MutexLock MutexV2 NInPolymorphicTwice
    NInTwice NInTwoTypeVariables NIntsIn NIntsOut NIntsOutDefault NPolymorphicIn NPolymorphicOut
    NPolymorphicOutDefault NPolymorphicRestrictIn NPolymorphicRestrictOut
    Namespace>TestStringOutput NcclAllReduce NcclBroadcast NcclReduce Ndtri NearestNeighbors Neg
    NegTrain NextAfter NextIteration NoOp NonDeterministicInts NonMaxSuppression
    NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
    NonMaxSuppressionWithOverlaps NonSerializableDataset None NotEqual NthElement Old OneHot
    OneShotIterator OnesLike OpWithDefaultAttr OpWithFutureDefaultAttr OptimizeDataset
    OptimizeDatasetV2 OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone
    OptionsDataset OrderedMapClear OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize
    OrderedMapStage OrderedMapUnstage OrderedMapUnstageNoKey OutT OutTypeList
    OutTypeListRestrict OutfeedDequeue OutfeedDequeueTuple OutfeedDequeueTupleV2
    OutfeedDequeueV2 OutfeedEnqueue OutfeedEnqueueTuple Pack Pad PadV2 PaddedBatchDataset
    PaddedBatchDatasetV2 PaddingFIFOQueue PaddingFIFOQueueV2 ParallelBatchDataset ParallelConcat
    ParallelDynamicStitch ParallelFilterDataset ParallelInterleaveDataset
    ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4
    ParallelMapDataset ParallelMapDatasetV2 ParameterizedTruncatedNormal ParseExample
    ParseExampleDataset ParseExampleDatasetV2 ParseExampleV2 ParseSequenceExample
    ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample ParseTensor
    PartitionedCall Placeholder PlaceholderV2 PlaceholderWithDefault Polygamma Polymorphic
    PolymorphicDefaultOut PolymorphicOut PopulationCount Pow PrefetchDataset Prelinearize
    PrelinearizeTuple PreventGradient Print PrintV2 PriorityQueue PriorityQueueV2
    PrivateThreadPoolDataset Prod PyFunc PyFuncStateless Qr QuantizeAndDequantize
    QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
    QuantizeAndDequantizeV4Grad QuantizeDownAndShrinkRange QuantizeV2 QuantizedAdd
    QuantizedAvgPool QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedConcat
    QuantizedConcatV2 QuantizedConv2D QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize
    QuantizedConv2DAndRequantize QuantizedConv2DPerChannel QuantizedConv2DWithBias
    QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize
    QuantizedConv2DWithBiasAndRequantize QuantizedConv2DWithBiasSignedSumAndReluAndRequantize
    QuantizedConv2DWithBiasSumAndRelu QuantizedConv2DWithBiasSumAndReluAndRequantize
    QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias
    QuantizedDepthwiseConv2DWithBiasAndRelu QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize
    QuantizedInstanceNorm QuantizedMatMul QuantizedMatMulWithBias
    QuantizedMatMulWithBiasAndDequantize QuantizedMatMulWithBiasAndRelu
    QuantizedMatMulWithBiasAndReluAndRequantize QuantizedMatMulWithBiasAndRequantize
    QuantizedMaxPool QuantizedMul QuantizedRelu QuantizedRelu6 QuantizedReluX QuantizedReshape
    QuantizedResizeBilinear QueueClose QueueCloseV2 QueueDequeue QueueDequeueMany
    QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 QueueDequeueV2 QueueEnqueue
    QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosed QueueIsClosedV2 QueueSize
    QueueSizeV2 RFFT RFFT2D RFFT3D RFFTND RGBToHSV RaggedBincount RaggedCountSparseOutput
    RaggedCross RaggedFillEmptyRows RaggedFillEmptyRowsGrad RaggedGather RaggedRange
    RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
    RaggedTensorToVariantGradient RandomCrop RandomDataset RandomDatasetV2 RandomGamma
    RandomGammaGrad RandomIndexShuffle RandomPoisson RandomPoissonV2 RandomShuffle
    RandomShuffleQueue RandomShuffleQueueV2 RandomStandardNormal RandomUniform RandomUniformInt
    Range RangeDataset Rank ReadFile ReadVariableOp ReadVariableXlaSplitND
    ReaderNumRecordsProduced ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted
    ReaderNumWorkUnitsCompletedV2 ReaderRead ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2
    ReaderReset ReaderResetV2 ReaderRestoreState ReaderRestoreStateV2 ReaderSerializeState
    ReaderSerializeStateV2 Real RealDiv RebatchDataset RebatchDatasetV2 Reciprocal
    ReciprocalGrad RecordInput Recv RecvTPUEmbeddingActivations ReduceDataset ReduceJoin
    RefEnter RefExit RefIdentity RefIn RefInputFloatInput RefInputFloatInputIntOutput
    RefInputIntInput RefMerge RefNextIteration RefOut RefOutput RefOutputFloatOutput RefSelect
    RefSwitch RegexFullMatch RegexReplace RegisterDataset RegisterDatasetV2 Relayout
    RelayoutLike Relu Relu6 Relu6Grad ReluGrad RemoteCall RepeatDataset RequantizationRange
    RequantizationRangePerChannel Requantize RequantizePerChannel RequiresOlderGraphVersion
    ReservedAttr ReservedInput Reshape ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear
    ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad
    ResourceAccumulatorApplyGradient ResourceAccumulatorNumAccumulated
    ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient ResourceApplyAdaMax
    ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2
    ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyAddSign
    ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2
    ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
    ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
    ResourceApplyRMSProp ResourceConditionalAccumulator ResourceCountUpTo ResourceCreateOp
    ResourceGather ResourceGatherNd ResourceInitializedOp ResourceScatterAdd ResourceScatterDiv
    ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd
    ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate
    ResourceScatterSub ResourceScatterUpdate ResourceSparseApplyAdadelta
    ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
    ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
    ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
    ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent
    ResourceSparseApplyRMSProp ResourceStridedSliceAssign ResourceUsingOp Restore RestoreSlice
    RestoreV2 Restrict RetrieveAllTPUEmbeddingParameters RetrieveTPUEmbeddingADAMParameters
    RetrieveTPUEmbeddingAdadeltaParameters RetrieveTPUEmbeddingAdagradMomentumParameters
    RetrieveTPUEmbeddingAdagradParameters RetrieveTPUEmbeddingCenteredRMSPropParameters
    RetrieveTPUEmbeddingFTRLParameters RetrieveTPUEmbeddingFrequencyEstimatorParameters
    RetrieveTPUEmbeddingMDLAdagradLightParameters RetrieveTPUEmbeddingMomentumParameters
    RetrieveTPUEmbeddingProximalAdagradParameters RetrieveTPUEmbeddingProximalYogiParameters
    RetrieveTPUEmbeddingRMSPropParameters
    RetrieveTPUEmbeddingStochasticGradientDescentParameters Reverse ReverseSequence ReverseV2
    RewriteDataset RightShift Rint RiscAbs RiscAdd RiscBinaryArithmetic RiscBinaryComparison
    RiscBitcast RiscBroadcast RiscCast RiscCeil RiscCholesky RiscConcat RiscCondition RiscConv
    RiscCos RiscDiv RiscDot RiscExp RiscFft RiscFloor RiscGather RiscImag RiscIsFinite RiscLog
    RiscLogicalAnd RiscLogicalNot RiscLogicalOr RiscMax RiscMin RiscMul RiscNeg RiscPad RiscPool
    RiscPow RiscRandomUniform RiscReal RiscReduce RiscRem RiscReshape RiscReverse RiscScatter
    RiscShape RiscSign RiscSlice RiscSort RiscSqueeze RiscSub RiscTranspose RiscTriangularSolve
    RiscUnary RiscWhile RngReadAndSkip RngSkip Roll Round RpcCall RpcCheckStatus RpcClient
    RpcGetValue RpcServer RpcServerRegister RpcServerStart Rsqrt RsqrtGrad
    SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 SamplingDataset Save SaveDataset
    SaveDatasetV2 SaveSlices SaveV2 ScalarSummary ScaleAndTranslate ScaleAndTranslateGrad
    ScanDataset ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNd ScatterNdAdd
    ScatterNdMax ScatterNdMin ScatterNdNonAliasingAdd ScatterNdSub ScatterNdUpdate ScatterSub
    ScatterUpdate SdcaFprint SdcaOptimizer SdcaOptimizerV2 SdcaShrinkL1 SegmentMax SegmentMaxV2
    SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select
    SelectV2 SelfAdjointEig SelfAdjointEigV2 Selu SeluGrad Send SendTPUEmbeddingGradients
    SerializeIterator SerializeManySparse SerializeSparse SerializeTensor SetSize
    SetStatsAggregatorDataset Shape ShapeN ShardDataset ShardedFilename ShardedFilespec
    ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2
    ShuffleDatasetV3 ShutdownDistributedTPU ShutdownTPUSystem Sigmoid SigmoidGrad Sign Simple
    SimpleStruct Sin Sinh Size SkipDataset Skipgram SleepDataset SleepIdentityOp SleepOp Slice
    SlidingWindowDataset Snapshot SnapshotChunkDataset SnapshotDataset SnapshotDatasetReader
    SnapshotDatasetV2 SnapshotNestedDatasetReader SobolSample Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
    SortListOfSparseCoreCooTensors SpaceToBatch SpaceToBatchND SpaceToDepth
    SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient SparseAdd SparseAddGrad
    SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2
    SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum
    SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp
    SparseBincount SparseConcat SparseConditionalAccumulator SparseCountSparseOutput SparseCross
    SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul
    SparseFillEmptyRows SparseFillEmptyRowsGrad SparseMatMul SparseMatrixAdd SparseMatrixMatMul
    SparseMatrixMul SparseMatrixNNZ SparseMatrixOrderingAMD SparseMatrixSoftmax
    SparseMatrixSoftmaxGrad SparseMatrixSparseCholesky SparseMatrixSparseMatMul
    SparseMatrixTranspose SparseMatrixZeros SparseReduceMax SparseReduceMaxSparse
    SparseReduceSum SparseReduceSumSparse SparseReorder SparseReshape SparseSegmentMean
    SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments
    SparseSegmentSqrtN SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2
    SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad
    SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad
    SparseSoftmax SparseSoftmaxCrossEntropyWithLogits SparseSparseMaximum SparseSparseMinimum
    SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseTensorSliceDataset
    SparseTensorToCSRSparseMatrix SparseToDense SparseToSparseSetOperation Spence Split
    SplitDedupData SplitV SqlDataset Sqrt SqrtGrad Square SquaredDifference Squeeze Stack
    StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2 Stage StageClear
    StagePeek StageSize StatefulPartitionedCall StatefulRandomBinomial StatefulStandardNormal
    StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt
    StatefulUniformInt StatelessCase StatelessIf StatelessMultinomial
    StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
    StatelessRandomGammaV3 StatelessRandomGetAlg StatelessRandomGetKeyCounter
    StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2
    StatelessRandomPoisson StatelessRandomUniform StatelessRandomUniformFullInt
    StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformV2 StatelessSampleDistortedBoundingBox StatelessShuffle
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessWhile StaticRegexFullMatch
    StaticRegexReplace StatsAggregatorHandle StatsAggregatorHandleV2
    StatsAggregatorSetSummaryWriter StatsAggregatorSummary StochasticCastToInt StopGradient
    StoreMinibatchStatisticsInFdo StridedSlice StridedSliceAssign StridedSliceGrad StringFormat
    StringJoin StringLength StringListAttr StringLower StringNGrams StringSplit StringSplitV2
    StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
    StringToNumber StringUpper StubResourceHandleOp Sub Substr Sum SummaryWriter Svd Switch
    SymbolicGradient SyncDevice TFRecordDataset TFRecordDatasetV2 TFRecordReader
    TFRecordReaderV2 TPUAnnotateTensorsWithDynamicShape TPUCompilationResult TPUCompile
    TPUCompileSucceededAssert TPUCopyWithDynamicShape TPUDummyInput TPUEmbeddingActivations
    TPUExecute TPUExecuteAndUpdateVariables TPUOrdinalSelector TPUPartitionedCall
    TPUPartitionedInput TPUPartitionedInputV2 TPUPartitionedOutput TPUPartitionedOutputV2
    TPUReplicateMetadata TPUReplicatedInput TPUReplicatedOutput TPUReshardVariables
    TPURoundRobin TakeDataset TakeManySparseFromTensorsMap TakeWhileDataset Tan Tanh TanhGrad
    TemporaryVariable TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3
    TensorArrayConcat TensorArrayConcatV2 TensorArrayConcatV3 TensorArrayGather
    TensorArrayGatherV2 TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3
    TensorArrayGradWithShape TensorArrayPack TensorArrayRead TensorArrayReadV2 TensorArrayReadV3
    TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3 TensorArraySize
    TensorArraySizeV2 TensorArraySizeV3 TensorArraySplit TensorArraySplitV2 TensorArraySplitV3
    TensorArrayUnpack TensorArrayV2 TensorArrayV3 TensorArrayWrite TensorArrayWriteV2
    TensorArrayWriteV3 TensorDataset TensorListConcat TensorListConcatLists TensorListConcatV2
    TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem
    TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch
    TensorListReserve TensorListResize TensorListScatter TensorListScatterIntoExistingList
    TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack TensorMapErase
    TensorMapHasKey TensorMapInsert TensorMapLookup TensorMapSize TensorMapStackKeys
    TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorSliceDataset TensorStridedSliceUpdate TensorSummary TensorSummaryV2 TestAttr
    TestStringOutput TextLineDataset TextLineReader TextLineReaderV2 ThreadPoolDataset
    ThreadPoolHandle ThreadUnsafeUnigramCandidateSampler Tile TileGrad Timestamp ToBool TopK
    TopKUnique TopKV2 TopKWithUnique TpuHandleToProtoKey Transpose TridiagonalMatMul
    TridiagonalSolve TruncateDiv TruncateMod TruncatedNormal TwoFloatInputs
    TwoFloatInputsFloatOutput TwoFloatInputsIntOutput TwoFloatOutputs TwoIntInputs TwoIntOutputs
    TwoRefsIn TypeList TypeListRestrict TypeListTwice Unary Unbatch UnbatchDataset UnbatchGrad
    UncompressElement UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript
    UnicodeTranscode UniformCandidateSampler UniformDequantize UniformQuantize
    UniformQuantizedAdd UniformQuantizedClipByValue UniformQuantizedConvolution
    UniformQuantizedConvolutionHybrid UniformQuantizedDot UniformQuantizedDotHybrid
    UniformRequantize Unique UniqueDataset UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack
    UnravelIndex UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
    UnsortedSegmentSum Unstage UnwrapDatasetVariant UpdateTaskIdAndGlobalCoreArray UpperBound
    VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2 WeightedFlatMapDataset
    Where While WholeFileReader WholeFileReaderV2 WindowDataset WindowOp WorkerHeartbeat
    WrapDatasetVariant WriteAudioSummary WriteFile WriteGraphSummary WriteHistogramSummary
    WriteImageSummary WriteRawProtoSummary WriteScalarSummary WriteSummary Xdivy XlaAllReduce
    XlaBroadcastHelper XlaCallModule XlaClusterOutput XlaConcatND XlaConv XlaConvV2
    XlaCustomCall XlaCustomCallV2 XlaDequantize XlaDot XlaDotV2 XlaDynamicSlice
    XlaDynamicUpdateSlice XlaEinsum XlaGather XlaHostCompute XlaIf XlaKeyValueSort XlaLaunch
    XlaLaunchV2 XlaOptimizationBarrier XlaPad XlaRecv XlaRecvFromHost
    XlaRecvTPUEmbeddingActivations XlaRecvTPUEmbeddingActivationsV2
    XlaRecvTPUEmbeddingDeduplicationData XlaRecvTPUEmbeddingDeduplicationDataV2 XlaReduce
    XlaReducePrecision XlaReduceScatter XlaReduceWindow XlaRemoveDynamicDimensionSize
    XlaReplicaId XlaRngBitGenerator XlaScatter XlaSelectAndScatter XlaSelfAdjointEig XlaSend
    XlaSendTPUEmbeddingGradients XlaSendTPUEmbeddingGradientsV2 XlaSendToHost XlaSetBound
    XlaSetDynamicDimensionSize XlaSharding XlaSort XlaSparseActivationsUnstack
    XlaSparseCoreAdagrad XlaSparseCoreAdagradMomentum XlaSparseCoreAdam XlaSparseCoreFtrl
    XlaSparseCoreSgd XlaSparseDenseMatmul
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdagradAndCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdagradMomentumAndCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdamAndCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithFtrlAndCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcGradWithSgdAndCsrInput
    XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput
    XlaSparseDenseMatmulGradWithAdagradAndCsrInput
    XlaSparseDenseMatmulGradWithAdagradAndStaticBufferSize
    XlaSparseDenseMatmulGradWithAdagradMomentumAndCsrInput
    XlaSparseDenseMatmulGradWithAdagradMomentumAndStaticBufferSize
    XlaSparseDenseMatmulGradWithAdamAndCsrInput
    XlaSparseDenseMatmulGradWithAdamAndStaticBufferSize XlaSparseDenseMatmulGradWithCsrInput
    XlaSparseDenseMatmulGradWithFtrlAndCsrInput
    XlaSparseDenseMatmulGradWithFtrlAndStaticBufferSize
    XlaSparseDenseMatmulGradWithSgdAndCsrInput
    XlaSparseDenseMatmulGradWithSgdAndStaticBufferSize XlaSparseDenseMatmulWithCsrInput
    XlaSparseDenseMatmulWithStaticBufferSize XlaSparseGradientsStack XlaSplitND
    XlaSpmdFullToShardShape XlaSpmdShardToFullShape XlaSvd XlaVariadicReduce XlaVariadicReduceV2
    XlaVariadicSort XlaWhile Xlog1py Xlogy ZerosLike Zeta ZipDataset _Arg _ArrayToList
    _ConfigureDistributedTPU _CopyFromGpuToHost _CopyFromHostToGpu _DeviceArg _DeviceRetval
    _DisconnectHostFromDistributedTPUSystem _EagerConst _FusedBatchNormEx _FusedBatchNormGradEx
    _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative _FusedMatMul _FusedQuantizedConv2D
    _FusedQuantizedDepthwiseConv2D _HostCast _HostRecv _HostSend _If
    _InitializeHostForDistributedTPU _ListToArray _MklAvgPool _MklAvgPool3D _MklAvgPool3DGrad
    _MklAvgPoolGrad _MklBatchMatMul _MklBatchMatMulV2 _MklConcat _MklConcatV2
    _MklConjugateTranspose _MklConv2D _MklConv2DBackpropFilter _MklConv2DBackpropFilterWithBias
    _MklConv2DBackpropInput _MklConv2DWithBias _MklConv3D _MklConv3DBackpropFilterV2
    _MklConv3DBackpropInputV2 _MklDepthwiseConv2dNative _MklDepthwiseConv2dNativeBackpropFilter
    _MklDepthwiseConv2dNativeBackpropInput _MklDequantize _MklEinsum _MklElu _MklEluGrad
    _MklFusedBatchMatMulV2 _MklFusedBatchNorm _MklFusedBatchNormEx _MklFusedBatchNormGrad
    _MklFusedBatchNormGradV2 _MklFusedBatchNormGradV3 _MklFusedBatchNormV2 _MklFusedBatchNormV3
    _MklFusedConv2D _MklFusedDepthwiseConv2dNative _MklFusedInstanceNorm _MklFusedMatMul
    _MklFusedMish _MklLayerNorm _MklLeakyRelu _MklLeakyReluGrad _MklMatMul _MklMaxPool
    _MklMaxPool3D _MklMaxPool3DGrad _MklMaxPoolGrad _MklNativeAvgPool _MklNativeAvgPool3D
    _MklNativeAvgPool3DGrad _MklNativeAvgPoolGrad _MklNativeConv2D
    _MklNativeConv2DBackpropFilter _MklNativeConv2DBackpropFilterWithBias
    _MklNativeConv2DBackpropInput _MklNativeConv2DWithBias _MklNativeConv3D
    _MklNativeConv3DBackpropFilterV2 _MklNativeConv3DBackpropInputV2
    _MklNativeDepthwiseConv2dNative _MklNativeDepthwiseConv2dNativeBackpropFilter
    _MklNativeDepthwiseConv2dNativeBackpropInput _MklNativeFusedBatchNorm
    _MklNativeFusedBatchNormEx _MklNativeFusedBatchNormGrad _MklNativeFusedBatchNormGradV2
    _MklNativeFusedBatchNormGradV3 _MklNativeFusedBatchNormV2 _MklNativeFusedBatchNormV3
    _MklNativeFusedConv2D _MklNativeFusedConv3D _MklNativeFusedDepthwiseConv2dNative
    _MklNativeFusedMatMul _MklNativeMaxPool _MklNativeMaxPool3D _MklNativeMaxPool3DGrad
    _MklNativeMaxPoolGrad _MklNativePadWithConv2D _MklNativePadWithFusedConv2D
    _MklNativeSparseMatrixMatMul _MklPadWithConv2D _MklPadWithFusedConv2D _MklQuantizeV2
    _MklQuantizedAvgPool _MklQuantizedConcatV2 _MklQuantizedConv2D _MklQuantizedConv2DAndRelu
    _MklQuantizedConv2DAndReluAndRequantize _MklQuantizedConv2DAndRequantize
    _MklQuantizedConv2DPerChannel _MklQuantizedConv2DWithBias _MklQuantizedConv2DWithBiasAndRelu
    _MklQuantizedConv2DWithBiasAndReluAndRequantize _MklQuantizedConv2DWithBiasAndRequantize
    _MklQuantizedConv2DWithBiasSignedSumAndReluAndRequantize
    _MklQuantizedConv2DWithBiasSumAndRelu _MklQuantizedConv2DWithBiasSumAndReluAndRequantize
    _MklQuantizedDepthwiseConv2D _MklQuantizedDepthwiseConv2DWithBias
    _MklQuantizedDepthwiseConv2DWithBiasAndRelu
    _MklQuantizedDepthwiseConv2DWithBiasAndReluAndRequantize _MklQuantizedMatMulWithBias
    _MklQuantizedMatMulWithBiasAndDequantize _MklQuantizedMatMulWithBiasAndRelu
    _MklQuantizedMatMulWithBiasAndReluAndRequantize _MklQuantizedMatMulWithBiasAndRequantize
    _MklQuantizedMaxPool _MklRelu _MklRelu6 _MklRelu6Grad _MklReluGrad _MklSoftmax _MklSwish
    _MklTanh _MklTanhGrad _MklTranspose _NcclBroadcastRecv _NcclBroadcastSend _NcclReduceRecv
    _NcclReduceSend _ParallelConcatStart _ParallelConcatUpdate _QuantizedMatMul
    _QuantizedMaxPool3D _ReadVariablesOp _Recv _Retval _ScopedAllocator _ScopedAllocatorConcat
    _ScopedAllocatorSplit _Send _SetGlobalTPUArray _ShutdownDistributedTPU _SwitchN
    _TPUCompileMlir _TPUReplicate _TensorToHashBucketFast _UnaryOpsComposition _VarHandlesOp
    _WaitForDistributedTPU _While _XlaAotOnlyVarHandleOp _XlaCompile
    _XlaCompileMlirPlaceholderProgramKey _XlaHostComputeMlir _XlaMerge _XlaRecvAtHost
    _XlaRecvAtHostV2 _XlaRun _XlaSendFromHost _XlaSendFromHostV2
    __MklDummyConv2DBackpropFilterWithBias __MklDummyConv2DWithBias __MklDummyPadWithConv2D
    __MklDummyPadWithFusedConv2D
    """.split()  # noqa: SIM905 - 1910 names
)
