"""Any-subset training against the truth: KL to a grammar whose every conditional is known, by share of hidden tokens.

    python benchmarks/any_subset_grammar.py [--steps 400] [--share 1 0.5 0] [--seed 0]

The text is drawn from a hidden Markov model of 5 states and 10 tokens. For any set of shown tokens the posterior of a
hidden one follows from the forward-backward recursion, so KL(truth || model) needs no estimate of an entropy. The model
(2 layers of width 64) learns through the ordinary stream, objective and training loop; the held-out questions are
any-subset batches of one rate each, and each target is predicted given what is shown and the targets to its left.
A share of 0 is the paper's objective alone, with a sixth of the tokens predicted. Prints Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from xlnet import FitConfig, PermutationStream, StreamConfig, TokenCorpus, XLNetConfig, XLNetLMHeadModel, fit
from xlnet.batch import PretrainingBatch
from xlnet.pretraining.any_subset import AnySubsetConfig
from xlnet.pretraining.fixed_batches import FixedBatches, evaluation_batches
from xlnet.pretraining.objective import PermutationObjective
from xlnet.training.optimizer import OptimizerConfig
from xlnet.training.report import SilentReporter
from xlnet.training.schedule import ScheduleConfig

Floats = NDArray[np.float64]
RATES = (0.10, 0.25, 0.50, 0.75, 0.95, 1.00)
TOKENS = 10
SPECIAL_IDS = {"sep": TOKENS, "cls": TOKENS + 1}
VOCAB_SIZE = TOKENS + 2
STARTS_WORD = np.ones(VOCAB_SIZE, dtype=np.bool_)
STREAM = StreamConfig(seq_len=35, reuse_len=0, batch_size=32, bidirectional=False, consecutive_probability=1.0)
MODEL = XLNetConfig(
    vocab_size=VOCAB_SIZE, n_layer=2, d_model=64, n_head=4, d_head=16, d_inner=128, dropout=0.0, dropatt=0.0
)


@dataclass(frozen=True)
class HiddenMarkov:
    """A stationary hidden Markov model of K states and V tokens.

    Attributes:
        step: float64 ``[K, K]``, probability of the next state (column) given this one (row).
        emit: float64 ``[K, V]``, probability of a token in a state.
    """

    step: Floats
    emit: Floats

    @property
    def start(self) -> Floats:
        """Stationary distribution ``[K]``."""
        values, vectors = np.linalg.eig(self.step.T)
        stationary = np.real(vectors[:, np.argmax(np.real(values))])
        return stationary / stationary.sum()

    def sample(self, length: int, seed: int) -> NDArray[np.int64]:
        """A text of ``length`` tokens."""
        random = np.random.default_rng(seed)
        uniform = random.random((length, 2))
        steps, emits = self.step.cumsum(axis=1), self.emit.cumsum(axis=1)
        state = int(random.choice(len(self.step), p=self.start))
        tokens = np.empty(length, dtype=np.int64)
        for place in range(length):
            tokens[place] = min(self.emit.shape[1] - 1, np.searchsorted(emits[state], uniform[place, 0], "right"))
            state = min(len(self.step) - 1, int(np.searchsorted(steps[state], uniform[place, 1], "right")))
        return tokens

    def lattice_conditionals(self, tokens: NDArray[np.int64], shown: NDArray[np.bool_]) -> Floats:
        """``p(x_t | all tokens to the left, shown tokens to the right)`` for every position t of B texts of length L.

        Args:
            tokens: int64 ``[B, L]``.
            shown: bool ``[B, L]``, False at the targets.

        Returns:
            float64 ``[B, L, V]``.
        """
        rows, length = tokens.shape
        evidence = self.emit.T[tokens]
        ahead = np.tile(self.start, (rows, 1))  # of the state given all tokens to the left
        behind = np.ones((rows, length, len(self.step)))  # likelihood of what is shown to the right, up to a factor
        for place in range(length - 1, 0, -1):
            seen = np.where(shown[:, place, None], evidence[:, place], 1.0) * behind[:, place]
            behind[:, place - 1] = _normalized(seen @ self.step.T)
        found = np.empty((rows, length, self.emit.shape[1]))
        for place in range(length):
            found[:, place] = _normalized(ahead * behind[:, place]) @ self.emit
            ahead = _normalized(ahead * evidence[:, place]) @ self.step
        return found


def _normalized(weights: Floats) -> Floats:
    return weights / weights.sum(axis=-1, keepdims=True)


def grammar() -> HiddenMarkov:
    """Five states on a ring, mostly moving on by one; half of the tokens tell the state, the others are ambiguous."""
    ring = np.eye(5)
    step = 0.10 * ring + 0.70 * np.roll(ring, 1, axis=1) + 0.15 * np.roll(ring, 2, axis=1) + 0.01
    emit = np.concatenate([0.5 * ring + 0.2 * np.roll(ring, 1, axis=1), 0.3 * ring], axis=1)
    return HiddenMarkov(step, emit)


def corpus_of(source: HiddenMarkov, length: int, seed: int) -> TokenCorpus:
    """A text of the grammar; its "sentences" are cut without regard to the tokens, so that marks tell nothing."""
    ends = np.random.default_rng(seed + 1).random(length) < 0.1
    return TokenCorpus.from_arrays(
        source.sample(length, seed), ends, vocab_size=VOCAB_SIZE, special_ids=SPECIAL_IDS, fingerprint="grammar"
    )


def questions(source: HiddenMarkov, rates: Sequence[float], count: int) -> list[FixedBatches]:
    """``count`` held-out batches for each rate that hide so many of the tokens; all of the same text."""
    text = corpus_of(source, STREAM.batch_size * STREAM.text_len * count, seed=999)
    mixes = [AnySubsetConfig(share=1.0, low=rate, high=rate) for rate in rates]
    return [evaluation_batches(text, replace(STREAM, any_subset=mix), STARTS_WORD, count) for mix in mixes]


@torch.no_grad()
def divergence(model: nn.Module, source: HiddenMarkov, batches: Iterable[PretrainingBatch]) -> float:
    """Mean KL(truth || model) of a target, nats."""
    total, targets = 0.0, 0
    for batch in batches:
        logits = model(
            batch.input_ids,
            token_type_ids=batch.token_type_ids,
            order=batch.order,
            target_positions=batch.target_positions,
        ).logits
        log_model = logits.double().log_softmax(-1)[..., :TOKENS].numpy()
        truth = target_conditionals(source, batch)
        total += float((truth * (np.log(truth) - log_model)).sum())
        targets += truth.shape[0] * truth.shape[1]
    return total / targets


def target_conditionals(source: HiddenMarkov, batch: PretrainingBatch) -> Floats:
    """The true conditionals ``[B, P, V]`` of the targets: the text without its marks is one text of the grammar."""
    rows = len(batch.input_ids)
    is_text = batch.input_ids < TOKENS
    text = batch.input_ids[is_text].view(rows, -1).numpy()
    shown = (batch.order == 0)[is_text].view(rows, -1).numpy()
    return source.lattice_conditionals(text, shown)[~shown].reshape(rows, -1, TOKENS)


def train(
    source: HiddenMarkov, share: float, steps: int, seed: int, folder: Path, questions_each: int = 8
) -> list[list[float]]:
    """KL before, midway through and after ``steps`` of training at each of the rates.

    Args:
        source: the grammar.
        share: of any-subset batches.
        steps: of training.
        seed: of the text, the stream and the weights.
        folder: of the run.
        questions_each: held-out batches for each rate.
    """
    fixed = questions(source, RATES, questions_each)
    seen: list[list[float]] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.append([divergence(model, source, batches) for batches in fixed])
        return dict(zip((f"kl_{rate:.0%}" for rate in RATES), seen[-1], strict=True))

    mix = AnySubsetConfig(share=share, widen_steps=steps // 5) if share else AnySubsetConfig()
    stream_config = replace(STREAM, any_subset=mix, micro_batches=2, seed=seed)
    torch.manual_seed(seed)
    fit(
        XLNetLMHeadModel(MODEL),
        PermutationObjective(MODEL),
        PermutationStream(corpus_of(source, 100_000, seed), stream_config, STARTS_WORD),
        FitConfig(
            steps=steps,
            accumulation=2,
            optimizer=OptimizerConfig(learning_rate=3e-3),
            schedule=ScheduleConfig(warmup_steps=steps // 20, min_lr_ratio=0.01),
            evaluate_every=(steps + 1) // 2,
            save_every=0,
            tensorboard=False,
            plot=False,
            device="cpu",
            seed=seed,
        ),
        folder,
        evaluate=evaluate,
        reporter=SilentReporter(),
    )
    return seen


def rows_of(share: float, seen: Sequence[Sequence[float]]) -> list[str]:
    """Lines of the table."""
    moments = ("before", "midway", "after")
    return [
        f"| {share:g} | {moment} | " + " | ".join(f"{value:.4f}" for value in values) + " |"
        for moment, values in zip(moments, seen, strict=True)
    ]


def main(show: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--share", type=float, nargs="+", default=[1.0, 0.5, 0.0], help="any-subset share of batches")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    show("| any-subset share | KL, nats a token | " + " | ".join(f"{rate:.0%}" for rate in RATES) + " |")
    show("|---" * (len(RATES) + 2) + "|")
    for share in options.share:
        with tempfile.TemporaryDirectory() as folder:
            for line in rows_of(share, train(grammar(), share, options.steps, options.seed, Path(folder))):
                show(line)


if __name__ == "__main__":
    main()
