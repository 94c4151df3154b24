"""Tools to measure attention and to look at it.

`memory` and `kernels` measure; `costs` and `tiles` count; `online_softmax` and `attention_weights`
compute what the pictures show. `visualizer` and `plots` draw with matplotlib, `page` writes one
interactive HTML file without it.
"""

from .attention_weights import LayerAttention, entropy, record_attention
from .costs import attention_bytes, attention_flops, visible_pairs
from .kernels import KernelProfiler, ProfileResult
from .machine import Peaks, measured_peaks
from .memory import MemoryProfiler, MemoryStats, profile_attention_function
from .online_softmax import OnlineSoftmax, online_softmax
from .page import attention_page
from .plots import (
    AttentionHeatmap,
    BenchmarkDashboard,
    MemoryScalingPlot,
    PerformancePlot,
    TrainingConvergencePlot,
)
from .tiles import BlockPattern, block_pattern
from .timing import KernelTimer, timer
from .visualizer import AttentionVisualizer

__all__ = [
    "AttentionHeatmap",
    "AttentionVisualizer",
    "BenchmarkDashboard",
    "BlockPattern",
    "KernelProfiler",
    "KernelTimer",
    "LayerAttention",
    "MemoryProfiler",
    "MemoryScalingPlot",
    "MemoryStats",
    "OnlineSoftmax",
    "Peaks",
    "PerformancePlot",
    "ProfileResult",
    "TrainingConvergencePlot",
    "attention_bytes",
    "attention_flops",
    "attention_page",
    "block_pattern",
    "entropy",
    "measured_peaks",
    "online_softmax",
    "profile_attention_function",
    "record_attention",
    "timer",
    "visible_pairs",
]
