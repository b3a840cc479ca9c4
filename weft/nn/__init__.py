"""weft.nn: layers with torch's names, arguments and state dicts."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.nn": "functional init utils",
    "weft.nn.imported": "ImportedModule from_onnx",
    "weft.nn.modules.activation": (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid "
        "LogSoftmax Mish PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin "
        "Softplus Softshrink Softsign Tanh Tanhshrink Threshold"
    ),
    "weft.nn.modules.adaptive_softmax": "AdaptiveLogSoftmaxWithLoss",
    "weft.nn.modules.attention": "MultiheadAttention",
    "weft.nn.modules.batch_norm": (
        "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d "
        "SyncBatchNorm"
    ),
    "weft.nn.modules.containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "weft.nn.modules.conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "weft.nn.modules.dropout": (
        "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout"
    ),
    "weft.nn.modules.lazy": (
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d "
        "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear"
    ),
    "weft.nn.modules.linear": "Bilinear Flatten Identity Linear Unflatten",
    "weft.nn.modules.loss": (
        "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss "
        "GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss LinearCrossEntropyLoss "
        "MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss "
        "NLLLoss PairwiseDistance PoissonNLLLoss "
        "SmoothL1Loss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "weft.nn.modules.module": "Module ModuleError",
    "weft.nn.modules.needle": "Residual SoftmaxLoss",
    "weft.nn.modules.normalization": "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "weft.nn.modules.pooling": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
        "AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d "
        "FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d "
        "MaxUnpool2d MaxUnpool3d"
    ),
    "weft.nn.modules.resampling": (
        "ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d "
        "ConstantPad3d Fold PixelShuffle PixelUnshuffle ReflectionPad1d ReflectionPad2d "
        "ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Unfold Upsample "
        "UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d"
    ),
    "weft.nn.modules.rnn": "GRU LSTM RNN RNNBase",
    "weft.nn.modules.rnn_cells": "GRUCell LSTMCell RNNCell",
    "weft.nn.modules.sparse": "Embedding EmbeddingBag",
    "weft.nn.modules.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
        "TransformerEncoderLayer"
    ),
    "weft.nn.parameter": "Buffer Parameter UninitializedBuffer UninitializedParameter",
}
load_names_lazily(__name__, NAMES)
