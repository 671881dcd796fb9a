"""Text of strangers is cut and made harmless; values show what is not at its default."""

from dataclasses import dataclass

from fedmerit.core.showing import MOST_TEXT, printable, settings_html, short_repr, visible


@dataclass(frozen=True)
class Part:
    """Something with settings."""

    needed: int
    share: float = 0.5


def test_what_is_just_short_enough_is_shown_whole():
    assert printable("x" * 8, 8) == "x" * 8
    assert printable("x" * 9, 8) == "x" * 5 + "..."
    assert printable("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert len(printable("x" * (MOST_TEXT + 1))) == MOST_TEXT == 500


def test_lines_stay_lines_and_controls_do_not_steer():
    assert visible("one\ntwo\x1b[2J") == "one\ntwo\\x1b[2J"


def test_settings_that_were_chosen_are_shown():
    assert short_repr(Part(3)) == "Part(needed=3)"
    assert short_repr(Part(3, 0.7)) == "Part(needed=3, share=0.7)"
    assert settings_html(Part(3, 0.7)).count("<tr>") == 3
    assert "share" not in settings_html(Part(3))
