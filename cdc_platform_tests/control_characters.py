"""A text with control characters of every kind, and how it is shown."""

NASTY = "a\x1b]0;owned\x07b\rc\x9bd\u202ee\u2028f\ud800g\x7fh\u00adi"
SHOWN = "a\\u001b]0;owned\\u0007b\\rc\\u009bd\\u202ee\\u2028f\\ud800g\\u007fh\\u00adi"
