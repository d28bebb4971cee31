"""Tokens put behind a vocabulary: which may be, and how those that files declare keep the ids they have there."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

from xlnet.errors import CheckpointError, InputError
from xlnet.text import symbols
from xlnet.text.model_proto import CONTROL, USER_DEFINED, Piece
from xlnet.text.normalize import Normalization, check_text


def normal_form(token: str, normalization: Normalization) -> str:
    """A token as text holds it once it is normalized.

    Raises:
        InputError: for a token that is empty, holds white space, or names a control symbol.
    """
    text = normalization(check_text(token, "an added token"))
    if not text or any(c.isspace() or c == symbols.WORD_START for c in token):
        raise InputError(f"the added token {token!r} must hold visible characters and no white space.")
    if text in symbols.SYMBOLS and text != symbols.EOP:
        raise InputError(f"{token!r} is a symbol of XLNet; text cannot produce it, so it cannot be added.")
    return text


def unknown_pieces(tokens: Iterable[str], known: Iterable[str], normalization: Normalization) -> list[Piece]:
    """Pieces for the tokens that are not known yet, each once and in normal form.

    Raises:
        InputError: as :func:`normal_form`.
    """
    taken = set(known)
    new: list[Piece] = []
    for token in tokens:
        text = normal_form(token, normalization)
        if text not in taken:
            taken.add(text)
            new.append(Piece(text, 0.0, USER_DEFINED))
    return new


def declared_pieces(
    declared: Mapping[str, int], vocabulary: Sequence[str], normalization: Normalization, source: str
) -> list[Piece]:
    """Pieces for the tokens that files declare behind a vocabulary, in the order of their ids.

    Normalization may make one text of two tokens (``Zoë`` and ``Zoe``). Text can give the id of one of them only: that
    of the token which normalization leaves as it is, else of the first. The other one becomes a piece that keeps its
    id and that no text produces, so that those behind it do not move; a warning says so.

    Args:
        declared: ids of tokens by their text; those within the vocabulary are only compared with it.
        vocabulary: pieces of the model in the order of their ids.
        normalization: of the tokenizer.
        source: where the tokens come from, for messages.

    Raises:
        CheckpointError: an id that is taken by another token, ids with a gap, or a token that cannot be added.
    """
    size = len(vocabulary)
    by_id = sorted(declared, key=lambda text: declared[text])
    _check_known([text for text in by_id if declared[text] < size], declared, vocabulary, normalization, source)
    beyond = [text for text in by_id if declared[text] >= size]
    if [declared[text] for text in beyond] != list(range(size, size + len(beyond))):
        raise CheckpointError(
            f"{source}: the added tokens {[(declared[text], text) for text in beyond]} must follow the vocabulary "
            f"without a gap, from id {size} on, each with an id of its own. Correct the list of added tokens."
        )
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    for text in beyond:
        if text in ids:
            raise CheckpointError(
                f"{source}: the added token {text!r} is declared with id {declared[text]}, but the vocabulary has it "
                f"with id {ids[text]}. Correct the list of added tokens: a token has one id."
            )
    try:
        forms = {text: normal_form(text, normalization) for text in beyond}
    except InputError as error:
        raise CheckpointError(f"{source}: {error} Take it out of the list of added tokens.") from None
    ids |= {text: declared[text] for text, form in forms.items() if text == form}
    for text, form in forms.items():
        ids.setdefault(form, declared[text])
    lost = {text: form for text, form in forms.items() if ids[form] != declared[text]}
    _warn([f"{text!r} ({declared[text]}) as {form!r} ({ids[form]})" for text, form in lost.items()], source)
    return [Piece(text, 0.0, CONTROL) if text in lost else Piece(forms[text], 0.0, USER_DEFINED) for text in beyond]


def _check_known(
    tokens: Iterable[str],
    declared: Mapping[str, int],
    vocabulary: Sequence[str],
    normalization: Normalization,
    source: str,
) -> None:
    for token in tokens:
        number = declared[token]
        found = vocabulary[number] if number >= 0 else None
        if found not in (token, normalization(token)):
            raise CheckpointError(
                f"{source}: the added token {token!r} is declared with id {number}, but "
                + ("ids begin at 0." if found is None else f"the vocabulary has {found!r} there.")
                + f" Correct the list of added tokens, or put the {token!r} behind the vocabulary."
            )


def _warn(clashes: Sequence[str], source: str) -> None:
    if clashes:
        warnings.warn(
            f"{source}: normalization makes one text of added tokens and others, so that text is read "
            f"{'; '.join(clashes)}. All ids hold; other switches (lower=, keep_accents=) may tell the tokens apart.",
            UserWarning,
            stacklevel=4,
        )
