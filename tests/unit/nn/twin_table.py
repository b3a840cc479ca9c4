"""The layers that are compared with torch's: constructor, inputs, call."""

from __future__ import annotations

import numpy as np

from tests.unit.nn.twins import Twin

_RNG = np.random.default_rng(7)
IMAGE, LINE, VOLUME = (2, 4, 7, 6), (2, 4, 9), (1, 2, 5, 4, 6)
CLASSES = np.array([2, 0, 4], np.int64)
WEIGHTS = _RNG.uniform(0.5, 1.5, 5).astype(np.float32)
_SHARES = _RNG.uniform(0.1, 1, (3, 5))
PROBABILITIES = (_SHARES / _SHARES.sum(1, keepdims=True)).astype(np.float32)
SIGNS = np.array([1, -1, 1], np.float32)
BINARY = (_RNG.uniform(size=(3, 5)) > 0.5).astype(np.float32)
IDS = np.array([[1, 3, 0], [2, 2, 5]], np.int64)
HIDDEN = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False, False, False, True, True], [False] * 5])

LINEAR = [
    Twin("Linear", (5, 3), [(4, 5)]), Twin("Linear", (5, 3), [(5,)]),
    Twin("Linear", (5, 3), [(2, 4, 5)], {"bias": False}),
    Twin("Bilinear", (3, 4, 5), [(6, 3), (6, 4)]), Twin("Identity", (), [(2, 3)]),
    Twin("Flatten", (), [IMAGE]), Twin("Unflatten", (1, (2, 2)), [LINE]),
]
CONV = [
    Twin("Conv1d", (4, 6, 3), [LINE], {"padding": 1}),
    Twin("Conv1d", (4, 6, 3), [(4, 9)], {"stride": 2}),
    Twin("Conv2d", (4, 6, 3), [IMAGE], {"padding": 1, "stride": 2}),
    Twin("Conv2d", (4, 6, (3, 2)), [IMAGE], {"groups": 2, "bias": False}),
    Twin("Conv2d", (4, 4, 3), [IMAGE], {"groups": 4, "dilation": 2}),
    Twin("Conv2d", (4, 6, 4), [IMAGE], {"padding": "same"}),
    Twin("Conv2d", (4, 6, 3), [IMAGE], {"padding": 1, "padding_mode": "reflect"}),
    Twin("Conv2d", (4, 6, 3), [IMAGE], {"padding": 2, "padding_mode": "circular"}),
    Twin("Conv3d", (2, 3, 3), [VOLUME], {"padding": 1}),
    Twin("ConvTranspose1d", (4, 6, 3), [LINE], {"stride": 2}),
    Twin("ConvTranspose2d", (4, 6, 3), [IMAGE], {"stride": 2, "padding": 1,
                                                 "output_padding": 1}),
    Twin("ConvTranspose2d", (4, 6, 3), [IMAGE], {"groups": 2}),
    Twin("ConvTranspose3d", (2, 3, 2), [VOLUME], {"stride": 2}),
]
POOL = [
    Twin("MaxPool1d", (3,), [LINE], {"stride": 2, "padding": 1}),
    Twin("MaxPool2d", (3,), [IMAGE], {"stride": 2, "padding": 1}),
    Twin("MaxPool2d", (2,), [IMAGE], {"ceil_mode": True, "return_indices": True}),
    Twin("MaxPool2d", (2,), [(4, 7, 6)], {"dilation": 2, "stride": 1}),
    Twin("MaxPool3d", (2,), [VOLUME]), Twin("AvgPool1d", (3,), [LINE]),
    Twin("AvgPool2d", (3,), [IMAGE], {"stride": 2, "padding": 1}),
    Twin("AvgPool2d", (3,), [IMAGE], {"stride": 2, "padding": 1, "count_include_pad": False,
                                      "ceil_mode": True}),
    Twin("AvgPool2d", (3,), [IMAGE], {"stride": 2, "ceil_mode": True, "divisor_override": 5}),
    Twin("AvgPool3d", (2,), [VOLUME]), Twin("LPPool2d", (2, 2), [IMAGE]),
    Twin("LPPool1d", (3, 2), [LINE], low=0.1),
    Twin("AdaptiveAvgPool1d", (4,), [LINE]), Twin("AdaptiveAvgPool2d", ((3, None),), [IMAGE]),
    Twin("AdaptiveAvgPool2d", (1,), [IMAGE]), Twin("AdaptiveAvgPool3d", (2,), [VOLUME]),
    Twin("AdaptiveMaxPool1d", (4,), [LINE]), Twin("AdaptiveMaxPool2d", ((3, 2),), [IMAGE]),
    Twin("AdaptiveMaxPool3d", (2,), [VOLUME]),
]
NORM = [
    Twin("BatchNorm1d", (4,), [(6, 4)]), Twin("BatchNorm1d", (4,), [LINE], {"momentum": None}),
    Twin("BatchNorm2d", (4,), [IMAGE]), Twin("BatchNorm2d", (4,), [IMAGE], eval=True),
    Twin("BatchNorm2d", (4,), [IMAGE], {"affine": False, "track_running_stats": False}),
    Twin("BatchNorm3d", (2,), [VOLUME], {"eps": 1e-3, "momentum": 0.3}),
    Twin("LayerNorm", (6,), [IMAGE]), Twin("LayerNorm", ((7, 6),), [IMAGE], {"bias": False}),
    Twin("LayerNorm", ((7, 6),), [IMAGE], {"elementwise_affine": False}),
    Twin("RMSNorm", (6,), [IMAGE]), Twin("RMSNorm", ((7, 6),), [IMAGE], {"eps": 1e-4}),
    Twin("GroupNorm", (2, 4), [IMAGE]), Twin("GroupNorm", (4, 4), [LINE], {"affine": False}),
    Twin("InstanceNorm1d", (4,), [LINE]),
    Twin("InstanceNorm2d", (4,), [IMAGE], {"affine": True, "track_running_stats": True}),
    Twin("InstanceNorm2d", (4,), [IMAGE], {"track_running_stats": True}, eval=True),
    Twin("InstanceNorm3d", (2,), [(2, 5, 4, 6)]),
    Twin("LocalResponseNorm", (3,), [IMAGE], {"alpha": 0.1, "k": 2.0}),
]
EMBEDDING = [
    Twin("Embedding", (6, 4), [IDS]), Twin("Embedding", (6, 4), [IDS], {"padding_idx": 2}),
    Twin("Embedding", (6, 4), [IDS], {"max_norm": 1.0}),
    *(Twin("EmbeddingBag", (6, 4), [IDS], {"mode": mode}) for mode in ("sum", "mean", "max")),
    *(Twin("EmbeddingBag", (6, 4), [IDS.reshape(-1), np.array([0, 2, 2], np.int64)],
           {"mode": mode}) for mode in ("sum", "mean", "max")),
    Twin("Embedding", (6, 4), [IDS], {"scale_grad_by_freq": True}),
    Twin("EmbeddingBag", (6, 4, 1.0), [IDS.reshape(-1), np.array([0, 2, 6], np.int64)],
         {"include_last_offset": True, "padding_idx": 2}),
    Twin("AdaptiveLogSoftmaxWithLoss", (8, 12, [3, 7]), [(5, 8), np.array([0, 11, 5, 2, 4])]),
]
RECURRENT = [
    Twin("RNNCell", (3, 4), [(2, 3), (2, 4)], {"nonlinearity": "relu"}),
    Twin("LSTMCell", (3, 4), [(2, 3)]), Twin("GRUCell", (3, 4), [(2, 3), (2, 4)]),
    Twin("RNN", (3, 4), [(5, 2, 3)], {"num_layers": 2}),
    Twin("LSTM", (3, 4), [(5, 2, 3)], {"num_layers": 2, "bidirectional": True}),
    Twin("LSTM", (3, 4), [(2, 5, 3)], {"batch_first": True, "bias": False}),
    Twin("GRU", (3, 4), [(5, 2, 3), (2, 2, 4)], {"bidirectional": True}),
    Twin("GRU", (3, 4), [(5, 3)]),
    Twin("LSTM", (3, 4), [(5, 2, 3)], {"proj_size": 2, "bidirectional": True, "num_layers": 2}),
    Twin("LSTM", (3, 4), [(5, 3)], {"proj_size": 3, "bias": False}),
]
_ATTENTION = [(5, 2, 8)] * 3
TRANSFORMER = [
    Twin("MultiheadAttention", (8, 2), _ATTENTION),
    Twin("MultiheadAttention", (8, 2), _ATTENTION, call={"need_weights": False,
                                                         "attn_mask": HIDDEN}),
    Twin("MultiheadAttention", (8, 2), [(2, 5, 8)] * 3, {"batch_first": True, "bias": False},
         call={"key_padding_mask": PADDING, "average_attn_weights": False}),
    Twin("MultiheadAttention", (8, 2), [(3, 2, 8), (5, 2, 6), (5, 2, 4)],
         {"kdim": 6, "vdim": 4}),
    Twin("MultiheadAttention", (8, 2), _ATTENTION, {"add_bias_kv": True, "add_zero_attn": True},
         {"attn_mask": HIDDEN, "key_padding_mask": PADDING}),
    Twin("MultiheadAttention", (8, 2), [(5, 8)] * 3, {"add_bias_kv": True},
         {"need_weights": False}),
    Twin("TransformerEncoderLayer", (8, 2, 16, 0.0), [(5, 2, 8)]),
    Twin("TransformerEncoderLayer", (8, 2, 16, 0.0), [(5, 2, 8)],
         {"norm_first": True, "activation": "gelu"}, {"src_mask": HIDDEN, "is_causal": True}),
    Twin("TransformerDecoderLayer", (8, 2, 16, 0.0), [(5, 2, 8), (3, 2, 8)]),
    Twin("Transformer", (8, 2, 2, 2, 16, 0.0), [(3, 2, 8), (5, 2, 8)],
         call={"tgt_mask": np.where(HIDDEN, -np.inf, 0).astype(np.float32)}, tolerance=1e-4),
]
_PLAIN = ("ReLU", "ReLU6", "ELU", "SELU", "CELU", "LeakyReLU", "GELU", "SiLU", "Mish", "Sigmoid",
          "Tanh", "Softplus", "Softsign", "Tanhshrink", "Softshrink", "Hardshrink", "Hardtanh",
          "Hardsigmoid", "Hardswish", "LogSigmoid")
ACTIVATION = [
    *(Twin(name, (), [(3, 8)], low=-8, high=8) for name in _PLAIN),
    Twin("GELU", (), [(3, 8)], {"approximate": "tanh"}), Twin("ELU", (0.7,), [(3, 8)]),
    Twin("CELU", (0.7,), [(3, 8)]), Twin("Softplus", (2.0, 3.0), [(3, 8)]),
    Twin("Threshold", (0.1, 20.0), [(3, 8)]), Twin("GLU", (1,), [IMAGE]),
    Twin("Softmax", (1,), [IMAGE]), Twin("LogSoftmax", (-1,), [IMAGE]),
    Twin("Softmin", (1,), [IMAGE]), Twin("Softmax2d", (), [IMAGE]),
    Twin("PReLU", (), [IMAGE]), Twin("PReLU", (4,), [IMAGE]),
    Twin("RReLU", (), [IMAGE], eval=True), Twin("Dropout", (0.5,), [IMAGE], eval=True),
]
_PAIR = [(3, 5), (3, 5)]
LOSS = [
    *(Twin(name, (), _PAIR, {"reduction": how}) for name in ("L1Loss", "MSELoss", "SmoothL1Loss")
      for how in ("mean", "sum", "none")),
    Twin("HuberLoss", (), _PAIR, {"delta": 0.5}), Twin("SmoothL1Loss", (), _PAIR, {"beta": 0.5}),
    *(Twin("CrossEntropyLoss", (), [(3, 5), CLASSES], options) for options in (
        {}, {"weight": WEIGHTS}, {"ignore_index": 0, "reduction": "sum"},
        {"label_smoothing": 0.1}, {"label_smoothing": 0.1, "weight": WEIGHTS, "ignore_index": 4},
        {"reduction": "none"})),
    Twin("CrossEntropyLoss", (), [(3, 5, 2), np.array([[1, 0], [2, 4], [3, 3]], np.int64)]),
    Twin("CrossEntropyLoss", (), [(3, 5), PROBABILITIES],
         {"weight": WEIGHTS, "label_smoothing": 0.2}),
    Twin("CrossEntropyLoss", (), [(5,), np.array(3, np.int64)]),
    Twin("NLLLoss", (), [(3, 5), CLASSES], {"weight": WEIGHTS}),
    Twin("BCELoss", (), [PROBABILITIES, BINARY]),
    Twin("BCEWithLogitsLoss", (), [(3, 5), BINARY], {"pos_weight": WEIGHTS}),
    Twin("KLDivLoss", (), [(3, 5), PROBABILITIES], {"reduction": "batchmean"}),
    Twin("KLDivLoss", (), _PAIR, {"log_target": True}),
    Twin("PoissonNLLLoss", (), [(3, 5), PROBABILITIES * 6], {"full": True}),
    Twin("PoissonNLLLoss", (), [PROBABILITIES, PROBABILITIES], {"log_input": False}),
    Twin("GaussianNLLLoss", (), [(3, 5), (3, 5), PROBABILITIES], {"full": True}),
    Twin("MarginRankingLoss", (0.3,), [(3,), (3,), SIGNS]),
    Twin("HingeEmbeddingLoss", (), [(3,), SIGNS]), Twin("SoftMarginLoss", (), [(3,), SIGNS]),
    Twin("CosineEmbeddingLoss", (0.1,), [(3, 5), (3, 5), SIGNS]),
    Twin("MultiMarginLoss", (), [(3, 5), CLASSES], {"weight": WEIGHTS}),
    Twin("MultiMarginLoss", (2,), [(3, 5), CLASSES]),
    Twin("MultiLabelSoftMarginLoss", (), [(3, 5), BINARY]),
    Twin("TripletMarginLoss", (), [(3, 5)] * 3, {"swap": True}),
    Twin("TripletMarginLoss", (), [(3, 5)] * 3, {"p": 3.0}),
    Twin("CosineSimilarity", (), _PAIR), Twin("PairwiseDistance", (), _PAIR),
]
RESAMPLING = [
    Twin("Upsample", (), [IMAGE], {"scale_factor": 2}),
    Twin("Upsample", (), [IMAGE], {"size": (5, 9), "mode": "nearest-exact"}),
    Twin("Upsample", (), [IMAGE], {"scale_factor": 2, "mode": "bilinear"}),
    Twin("Upsample", (), [IMAGE], {"size": (5, 9), "mode": "bilinear", "align_corners": True}),
    Twin("Upsample", (), [IMAGE], {"scale_factor": 2, "mode": "bicubic"}),
    Twin("Upsample", (), [LINE], {"size": 5, "mode": "linear"}),
    Twin("Upsample", (), [VOLUME], {"scale_factor": 2, "mode": "trilinear"}),
    Twin("UpsamplingBilinear2d", (), [IMAGE], {"scale_factor": 2}),
    Twin("PixelShuffle", (2,), [IMAGE]), Twin("PixelUnshuffle", (2,), [(2, 3, 4, 6)]),
    Twin("ChannelShuffle", (2,), [IMAGE]), Twin("ConstantPad2d", ((1, 2, -1, 0), 3.5), [IMAGE]),
    Twin("ZeroPad2d", (1,), [IMAGE]), Twin("ReflectionPad1d", (2,), [LINE]),
    Twin("ReflectionPad2d", ((1, 2, 0, 3),), [IMAGE]), Twin("ReflectionPad3d", (1,), [VOLUME]),
    Twin("ReplicationPad2d", (2,), [IMAGE]), Twin("CircularPad2d", (2,), [IMAGE]),
]
ALL = [*LINEAR, *CONV, *POOL, *NORM, *EMBEDDING, *RECURRENT, *TRANSFORMER, *ACTIVATION, *LOSS,
       *RESAMPLING]
# One of each family: these run with the suite, all of them by ``make test-layers``.
SAMPLE = [LINEAR[0], CONV[3], POOL[1], NORM[2], EMBEDDING[1], RECURRENT[4], TRANSFORMER[5],
          ACTIVATION[-5], LOSS[13], RESAMPLING[2]]
