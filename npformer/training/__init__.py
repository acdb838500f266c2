"""Training: batches, the optimiser, the loop, and files to stop and go on with."""

from npformer.training.adamw import AdamW
from npformer.training.batches import Batches
from npformer.training.clipping import clip_by_norm
from npformer.training.evaluation import held_out_loss
from npformer.training.flat import FlatParameters
from npformer.training.model_files import load
from npformer.training.not_finite import NotFiniteError
from npformer.training.schedule import warmup_cosine
from npformer.training.trainer import Step, Trainer, TrainingConfig

__all__ = [
    "AdamW",
    "Batches",
    "FlatParameters",
    "NotFiniteError",
    "Step",
    "Trainer",
    "TrainingConfig",
    "clip_by_norm",
    "held_out_loss",
    "load",
    "warmup_cosine",
]
