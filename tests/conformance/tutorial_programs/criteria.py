"""What a program must have printed to pass. That it ended with status 0 is checked elsewhere."""

import re
from typing import Callable, Optional

# Takes what the program printed, and says what is wrong with it, or None.
Criterion = Callable[[str], Optional[str]]


def prints(*texts: str) -> Criterion:
    """The program prints each of these."""

    def check(printed: str) -> Optional[str]:
        missing = [text for text in texts if text not in printed]
        return f"it did not print '{missing[0]}'" if missing else None

    return check


def between(name: str, least: float, most: float) -> Criterion:
    """The program prints a percentage behind a name, and the last one is in a range.

    Args:
        name: the text before the number, such as "Accuracy on test set:".
        least, most: both excluded.
    """

    def check(printed: str) -> Optional[str]:
        found = re.findall(re.escape(name) + r"\s*([0-9.]+)\s*%", printed)
        if not found:
            return f"it did not print '{name}' with a percentage"
        if not least < float(found[-1]) < most:
            return f"'{name} {found[-1]}%' is not between {least} and {most}"
        return None

    return check


def both(*criteria: Criterion) -> Criterion:
    """The first criterion that is not met decides."""

    def check(printed: str) -> Optional[str]:
        return next(filter(None, (criterion(printed) for criterion in criteria)), None)

    return check


def ends(_: str) -> Optional[str]:
    """Nothing need be printed."""
    return None
