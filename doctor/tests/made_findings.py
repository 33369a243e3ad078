"""Findings made by hand, with every verdict and with words that must be escaped."""

from __future__ import annotations

from dlpack_doctor.findings import Examined, Findings, Pair
from dlpack_doctor.verdict import Outcome, Result, Verdict

NASTY = "<script>alert(1)</script> | `tick` *star*"
PROGRAM = "import good\nprint('shown')"
LONG = "a_very_long_name_without_a_space_" * 3


def made():
    """Twelve frameworks, as many as the real report has."""
    names = ["good", "bad", LONG, *(f"framework{n}" for n in range(9))]
    found = Findings(["Python 3.14, somewhere"], "2026-11-21")
    found.subjects = [Examined(name, "1.2.3") for name in names]
    found.subjects.append(Examined("absent", "", "ImportError: no <module>"))
    for name in names:
        found.results += [
            Result("producer.methods", name, Outcome(Verdict.PASS, "")),
            Result("producer.values", name, Outcome(Verdict.NOT_APPLICABLE, "no <values>")),
            Result("producer.speed", name, Outcome(Verdict.PASS, "", {"dltensor": 120.0})),
            Result("consumer.speed", name, Outcome(Verdict.PASS, "", {"from_dlpack": 3400.0})),
        ]
    found.results += [
        Result("producer.released", "bad", Outcome(Verdict.FAIL, NASTY, {}, PROGRAM)),
        Result("producer.released", "good", Outcome(Verdict.PASS, "")),
        Result("consumer.negative", "good", Outcome(Verdict.WARN, "refused: " + LONG)),
    ]
    found.pairs = [
        Pair("good", "bad", Outcome(Verdict.FAIL, "holds [<0>]")),
        Pair("bad", "good", Outcome(Verdict.PASS, "same memory")),
        Pair("good", "good", Outcome(Verdict.WARN, "copied")),
        Pair("bad", "bad", Outcome(Verdict.WARN, "refused: BufferError")),
    ]
    return found
