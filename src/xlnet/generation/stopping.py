"""The text of a continuation while it grows: where it ends, and what of it may be shown already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlnet.generation.methods import Run
from xlnet.generation.pieces import ends_in_space
from xlnet.generation.protocols import Tokenizer

_TAIL = 48


class Continuation:
    """One prompt's continuation as text.

    Args:
        tokenizer: ids to text.
        prompt, prompt_ids: what is continued.
        stop: strings that end the text.
        stop_ids: ids that end the text.
        number: which prompt it is.
        stream: called with (number, new text).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: str,
        prompt_ids: Sequence[int],
        stop: Sequence[str],
        stop_ids: Sequence[int],
        number: int,
        stream: Callable[[int, str], None] | None,
    ) -> None:
        self.tokenizer, self.prompt, self.prompt_ids = tokenizer, prompt, list(prompt_ids)
        self.stop, self.stop_ids = tuple(stop), frozenset(stop_ids)
        self.number, self.stream = number, stream
        self.after_space = bool(self.prompt_ids) and ends_in_space(prompt, tokenizer)
        self._shown = ""
        self._tail = _TAIL + max((len(text) for text in self.stop), default=0)

    def should_stop(self, run: Run) -> bool:
        """Whether the sample has come to an end."""
        return self.ending(run.decided) is not None

    def ending(self, ids: Sequence[int]) -> str | None:
        """``end`` after a stop id, ``stop`` where the newest text completes a stop string, else None."""
        if ids and ids[-1] in self.stop_ids:
            return "end"
        if self.stop and self._cut(self._decoded(ids[-self._tail :])) is not None:
            return "stop"
        return None

    def text(self, ids: Sequence[int]) -> str:
        """The continuation up to its end, with the space in front where the first piece has one and the prompt none."""
        kept = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        text = self._decoded(kept)
        cut = self._cut(text)
        text = text if cut is None else text[:cut]
        return text.removeprefix(" ") if self.after_space else text

    def show(self, ids: Sequence[int], *, final: bool) -> None:
        """Hand new text to the stream; what could still become a stop string is held back until the end."""
        if self.stream is None:
            return
        text = self.text(ids)
        if not final:
            text = text[: len(text) - self._held_back(text)]
        if len(text) > len(self._shown) and text.startswith(self._shown):
            self.stream(self.number, text[len(self._shown) :])
            self._shown = text

    def _decoded(self, ids: Sequence[int]) -> str:
        """Text of some pieces after the prompt's last ones, so that spacing comes out as inside a text."""
        before = self.prompt_ids[-8:]
        both, front = self.tokenizer.decode([*before, *ids]), self.tokenizer.decode(before)
        if both.startswith(front):
            return both[len(front) :]
        return self.tokenizer.decode(list(ids))

    def _cut(self, text: str) -> int | None:
        places = [place for place in (text.find(stop) for stop in self.stop) if place >= 0]
        return min(places, default=None)

    def _held_back(self, text: str) -> int:
        longest = 0
        for stop in self.stop:
            for size in range(min(len(stop) - 1, len(text)), 0, -1):
                if text.endswith(stop[:size]):
                    longest = max(longest, size)
                    break
        return longest
