"""Settings of the backend."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentix.provider import _checks

if TYPE_CHECKING:
    from ._provider import E2BProvider


@dataclass
class E2BProviderConfig:
    """Which account, which template, how long; ValueError or TypeError says which setting is wrong.

    - `api_key`: of the account; None: what the variable `E2B_API_KEY` says. It is never shown in the repr.
    - `template_id`: the template, by name or id, that sandboxes and deployed bundles begin with; None: what
      `E2B_TEMPLATE_ID` says.
    - `timeout`: seconds that a sandbox lives without a handle; whoever holds one renews it.
    - `health_timeout`: seconds from the start of the runtime to its answer.

    Where the service is, `E2B_DOMAIN`, `E2B_API_URL` and `E2B_SANDBOX_URL` say, which the SDK reads by itself.
    """

    api_key: str | None = field(default=None, repr=False)
    template_id: str | None = None
    timeout: int = 3600
    health_timeout: float = 120.0

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check the fields again, as they may have been changed; raise as the constructor does."""
        if self.api_key is not None:
            _checks.secret("api_key", self.api_key)
        if self.template_id is not None:
            _checks.word("template_id", self.template_id)
        _checks.count("timeout", self.timeout)
        _checks.positive("health_timeout", self.health_timeout)

    def key(self) -> str:
        """Return the API key; ValueError says where one could have come from."""
        found = self.api_key or os.environ.get("E2B_API_KEY")
        if not found:
            raise ValueError(
                "E2B_API_KEY is not set: the e2b backend needs the API key of an account; "
                "export E2B_API_KEY, or give E2BProviderConfig(api_key=...)"
            )
        return _checks.secret("E2B_API_KEY", found)

    def template(self) -> str:
        """Return the template; ValueError says where one could have come from."""
        found = self.template_id or os.environ.get("E2B_TEMPLATE_ID")
        if not found:
            raise ValueError(
                "E2B_TEMPLATE_ID is not set: the e2b backend needs a template to begin with, 'base' for instance; "
                "export E2B_TEMPLATE_ID, or give E2BProviderConfig(template_id=...)"
            )
        return _checks.word("E2B_TEMPLATE_ID", found)

    def first_timeout(self) -> int:
        """Return the time of a sandbox that has yet to come up: a short `timeout` must not end it on the way."""
        return max(self.timeout, math.ceil(self.health_timeout) + 60)

    def to_provider(self) -> E2BProvider:
        """Make the provider of this configuration."""
        from ._provider import E2BProvider

        return E2BProvider(self)
