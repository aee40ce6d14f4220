"""The errors of this package: what is wrong with a load rule, in one line that says what would be possible.

LoadRuleError(ValueError)
├── ShapeError      a shape, its settings or an arrival process is impossible
├── LengthError     a rule for token lengths cannot be read
└── ScheduleError   a schedule.csv cannot be read, or its columns do not fit together
"""


class LoadRuleError(ValueError):
    """What is wrong with the load that was asked for; the message is one line for people."""


class ShapeError(LoadRuleError):
    """A shape or its settings are impossible."""


class LengthError(LoadRuleError):
    """A rule for token lengths cannot be read."""


class ScheduleError(LoadRuleError):
    """A schedule cannot be read or put together."""
