"""Which row reads which share of the corpus, in which direction, in which epoch."""

from __future__ import annotations

from dataclasses import dataclass

from xlnet.errors import InputError
from xlnet.pretraining.segments import Corpus, Lane
from xlnet.pretraining.stream_config import StreamConfig


@dataclass(frozen=True)
class LanePlan:
    """The lanes of all rows of a run: ``blocks`` micro-batches of ``batch_size`` rows on all processes together.

    In each block the forward rows come first. With an odd ``batch_size`` neighbouring blocks take the odd row in
    opposite directions, and all swap with each epoch. Forward lanes read different shares, and so do reversed lanes;
    where there is one share more than lanes of a direction, the share left out changes with the epochs.

    Attributes:
        batch_size: rows of a block.
        blocks: micro-batches of one step times processes.
        bidirectional: some rows read backwards.
        share_count: shares the corpus is cut into.
        share_length: tokens of a share, the same for all.
        steps: sequences of a lane in an epoch.
    """

    batch_size: int
    blocks: int
    bidirectional: bool
    share_count: int
    share_length: int
    steps: int

    @classmethod
    def make(cls, corpus_length: int, config: StreamConfig, world_size: int = 1) -> LanePlan:
        """Cut the corpus.

        Raises:
            InputError: when a share is shorter than one sequence; says what would fit.
        """
        lanes = config.batch_size * config.micro_batches * world_size
        shares = _share_count(lanes, config.bidirectional)
        length = corpus_length // shares
        if length < config.window:
            raise InputError(_too_short(corpus_length, config, world_size, shares))
        return cls(
            batch_size=config.batch_size,
            blocks=config.micro_batches * world_size,
            bidirectional=config.bidirectional,
            share_count=shares,
            share_length=length,
            steps=(length - config.window) // config.advance + 1,
        )

    def directions(self, epoch: int, block: int) -> list[int]:
        """+1 or -1 for each row of a block."""
        if not self.bidirectional:
            return [1] * self.batch_size
        forward = self._forward_rows(epoch, block)
        return [1] * forward + [-1] * (self.batch_size - forward)

    def lanes(self, corpus: Corpus, epoch: int, block: int) -> list[Lane]:
        """The lane of each row of a block."""
        earlier = sum(self._forward_rows(epoch, b) for b in range(block))
        next_of = {1: earlier, -1: block * self.batch_size - earlier}
        turn = epoch // 2 if self.bidirectional else 0
        lanes = []
        for direction in self.directions(epoch, block):
            share = (next_of[direction] + turn) % self.share_count
            next_of[direction] += 1
            lanes.append(Lane(corpus, share * self.share_length, self.share_length, direction))
        return lanes

    def _forward_rows(self, epoch: int, block: int) -> int:
        if not self.bidirectional:
            return self.batch_size
        return (self.batch_size + (epoch + block + 1) % 2) // 2


def largest_batch(corpus_length: int, config: StreamConfig, world_size: int = 1) -> int:
    """The largest ``batch_size`` for which every lane holds one sequence; 0 when not even one lane does."""
    shares = corpus_length // config.window
    lanes = shares * 2 if config.bidirectional else shares
    return lanes // (config.micro_batches * world_size)


def _share_count(lanes: int, bidirectional: bool) -> int:
    return (lanes + 1) // 2 if bidirectional else lanes


def _too_short(corpus_length: int, config: StreamConfig, world_size: int, shares: int) -> str:
    found = (
        f"The corpus has {corpus_length} tokens, and one lane needs {config.window} of them for a sequence of "
        f"seq_len={config.seq_len} (reuse_len={config.reuse_len})."
    )
    fits = corpus_length // config.window
    if fits == 0:
        return f"{found} Not even one lane fits: give more text, or lower seq_len to at most {corpus_length + 3}."
    wanted = config.batch_size * config.micro_batches * world_size
    parts = f"batch_size={config.batch_size}"
    parts += f" x micro_batches={config.micro_batches}" if config.micro_batches > 1 else ""
    parts += f" x {world_size} processes" if world_size > 1 else ""
    both = ", two lanes (one each way) sharing one" if config.bidirectional else ""
    best = largest_batch(corpus_length, config, world_size)
    lanes = fits * 2 if config.bidirectional else fits
    remedy = f"Set batch_size to at most {best}" if best else f"Only {lanes} lanes fit: lower micro_batches as well"
    return f"{found} {wanted} lanes ({parts}) need {shares} such shares{both}; {fits} fit. {remedy}, or give more text."
