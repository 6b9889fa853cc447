"""Reads what programs left of a run, however they ended: what is missing is empty, a line that is cut off or is no
JSON is left out and counted, and what is no finite number is None (metrics write NaN as null)."""
import json
import math
import pathlib


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def parsed(text):
    try:
        return finite(json.loads(text))
    except (ValueError, RecursionError):
        return None


def finite(value):
    """The same without NaN and infinities, which no other reader of JSON takes."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return value


def number(value):
    """As float; None unless it is a finite number."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def objects(path):
    """The JSON objects of a file of lines, and how many of its lines are none."""
    lines = [line for line in read(path).splitlines() if line.strip()]
    found = [one for one in map(parsed, lines) if isinstance(one, dict)]
    return found, len(lines) - len(found)


def event(events, what):
    """The last event of a worker that says `what`, or an empty one."""
    return next((e for e in reversed(events) if e.get("event") == what), {})


def last_lines(path, count):
    return [line[:300] for line in read(path).splitlines() if line.strip()][-count:]


def median(values):
    found = sorted(v for v in values if v is not None)
    return found[len(found) // 2] if found else None


def apart(losses, others):
    """The largest relative difference of two lists of losses, as far as both go; infinite where one is no number."""
    pairs = list(zip(losses, others))
    if not pairs:
        return None
    if any(a is None or not b for a, b in pairs):
        return math.inf
    return max(abs(a - b) / abs(b) for a, b in pairs)
