"""Spawning's ai.txt: rules by extension for the training of models."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_features.rights.signals import Reservation


@dataclass(frozen=True)
class AiTxt:
    """An ai.txt as it was read."""

    def page(self, agent: str, url: str) -> Reservation:
        """Whether a page or file may be trained on (scope `training`)."""
        raise NotImplementedError


def read_ai_txt(data: bytes) -> AiTxt:
    """Read an ai.txt."""
    raise NotImplementedError
