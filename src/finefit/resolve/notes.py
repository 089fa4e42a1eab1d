"""What resolving collects on its way: the source of each field, assumptions and warnings."""

from __future__ import annotations

from dataclasses import dataclass, field

from finefit.workload.sourced import Origin, Source


@dataclass(slots=True)
class Notes:
    """Sources by dotted field name ("lora.rank"); assumptions and warnings as sentences, each once."""

    sources: dict[str, Source] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def source(self, name: str, source: Source) -> None:
        """Record where a field comes from."""
        self.sources[name] = source

    def derived(self, name: str, rule: str) -> None:
        """A field that follows from others by a rule."""
        self.sources[name] = Source(Origin.DERIVED, rule)

    def assumed(self, name: str, why: str, sentence: str = "") -> None:
        """A field nobody stated; ``sentence`` also goes to the assumptions."""
        self.sources[name] = Source(Origin.ASSUMED, why)
        if sentence:
            self.assume(sentence)

    def assume(self, sentence: str) -> None:
        """An assumption the reader should see."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def warn(self, sentence: str) -> None:
        """Something the reader should check."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)
