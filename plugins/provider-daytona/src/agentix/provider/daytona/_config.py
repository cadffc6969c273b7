"""Settings of the backend."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentix.provider import _checks

if TYPE_CHECKING:
    from ._provider import DaytonaProvider


@dataclass
class DaytonaProviderConfig:
    """Which account, where, how long; ValueError or TypeError says which setting is wrong.

    - `api_key`: of the account; None: what the variable `DAYTONA_API_KEY` says. It is never shown in the repr.
    - `api_url`: of the service; None: what `DAYTONA_API_URL` says, or the SDK's own.
    - `target`: the region; None: what `DAYTONA_TARGET` says, or the account's own.
    - `health_timeout`: seconds from the start of the runtime to its answer.
    - `create_timeout`: seconds until the sandbox itself runs; the first one of an image has to build it.
    - `lease`: seconds that a sandbox lives without a handle, rounded up to minutes; whoever holds one renews it. None:
      for ever.
    """

    api_key: str | None = field(default=None, repr=False)
    api_url: str | None = None
    target: str | None = None
    health_timeout: float = 120.0
    create_timeout: float = field(default=600.0, kw_only=True)
    lease: float | None = field(default=900, kw_only=True)

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        if self.api_key is not None:
            _checks.secret("api_key", self.api_key)
        if self.api_url is not None and urlsplit(_checks.word("api_url", self.api_url)).scheme not in ("http", "https"):
            raise ValueError(f"api_url must begin with https:// or http://: {self.api_url!r}")
        if self.target is not None:
            _checks.word("target", self.target)
        _checks.positive("health_timeout", self.health_timeout)
        _checks.positive("create_timeout", self.create_timeout)
        if self.lease is not None:
            _checks.positive("lease", self.lease)

    def key(self) -> str:
        """Return the API key; ValueError says where one could have come from."""
        found = self.api_key or os.environ.get("DAYTONA_API_KEY")
        if not found:
            raise ValueError(
                "DAYTONA_API_KEY is not set: the daytona backend needs the API key of an account; "
                "export DAYTONA_API_KEY, or give DaytonaProviderConfig(api_key=...)"
            )
        return _checks.secret("DAYTONA_API_KEY", found)

    def minutes(self) -> int:
        """Return the lease as the service wants it: whole minutes, 0 for none."""
        return 0 if self.lease is None else math.ceil(self.lease / 60)

    def first_minutes(self) -> int:
        """Return the same for a sandbox that has yet to come up: a short lease must not end it on the way."""
        minutes = self.minutes()
        return minutes and max(minutes, math.ceil(self.health_timeout / 60) + 2)

    def to_provider(self) -> DaytonaProvider:
        """Make the provider of this configuration."""
        from ._provider import DaytonaProvider

        return DaytonaProvider(self)
