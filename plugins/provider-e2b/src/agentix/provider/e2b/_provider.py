"""The provider: which calls of the SDK make a sandbox, in which order, and which undo it.

A bundle becomes a snapshot, which E2B keeps and starts sandboxes from: a sandbox is made of the template, the bundle is
uploaded and unpacked in it, the snapshot is taken under a name made of template and content, and the sandbox ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.provider import _checks, _cloud, _lease
from agentix.provider.base import DeployedBundle, Sandbox, SandboxConfig, SandboxId, SandboxProvider

from ._config import E2BProviderConfig

if TYPE_CHECKING:
    from e2b import AsyncCommandHandle, AsyncSandbox

SCHEME = "e2b:"
"""How `SandboxConfig.bundle` names a snapshot or a template that holds a bundle already."""
PLATFORM = "linux/amd64"
LABEL = "agentix"
"""The key in a sandbox's metadata whose value tells it from all others, even before its id is known."""
PORT_LABEL = "agentix-port"
ARCHIVE = "/tmp/agentix-bundle.tar.gz"
UNPACK_SECONDS = 600.0
START_SECONDS = 60.0
UNBOUNDED = 0
"""The SDK's own bound for a command's start has a task whose error nobody takes if a cancellation comes meanwhile."""


class E2BProvider(SandboxProvider):
    """Bring a bundle to E2B, as a snapshot of a template that sandboxes start from."""

    def __init__(self, config: E2BProviderConfig | None = None) -> None:
        self._config = config if config is not None else E2BProviderConfig()
        _checks.instance("config", self._config, E2BProviderConfig)
        self._config.validate()
        self._key = self._config.key()
        self._template = self._config.template()
        self._deployed = _cloud.Deployed()
        self._known: dict[str, tuple[AsyncSandbox, str]] = {}

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox and return it when its runtime has proved to be there.

        RuntimeError says which step failed, with the runtime's last output; the sandbox is ended then, and after a
        cancellation too.
        """
        config.validate()
        _check(config)
        place = await self._place_of(config.bundle)
        env = _cloud.environment(config)
        async with self._new(place.removeprefix(SCHEME), {PORT_LABEL: env["AGENTIX_BIND_PORT"]}) as box:
            return await self._start(box, env)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """End a sandbox; an unknown id is passed over. RuntimeError if the service could not do it: try again."""
        _checks.sandbox_id(sandbox_id)
        from e2b import AsyncSandbox

        with self._told(f"deleting sandbox {sandbox_id}"):
            await AsyncSandbox.kill(sandbox_id, api_key=self._key)
        self._known.pop(sandbox_id, None)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, whoever made it with this account. KeyError if there is none.

        Of one that this provider has not seen yet, that begins its time anew.
        """
        _checks.sandbox_id(sandbox_id)
        from e2b import AsyncSandbox, NotFoundException, SandboxState

        unknown = KeyError(f"no sandbox {sandbox_id!r} runs there; it may have ended or been deleted")
        with self._told(f"looking for sandbox {sandbox_id}"):
            try:
                info = await AsyncSandbox.get_info(sandbox_id, api_key=self._key)
                if PORT_LABEL not in info.metadata or info.state is not SandboxState.RUNNING:
                    raise unknown
                box, token = self._known.get(sandbox_id) or await self._join(sandbox_id)
                port = int(info.metadata[PORT_LABEL])
            except NotFoundException:
                self._known.pop(sandbox_id, None)
                raise unknown from None
        return self._handle(box, token, port)

    async def _join(self, sandbox_id: str) -> tuple[AsyncSandbox, str]:
        from e2b import AsyncSandbox

        box = await AsyncSandbox.connect(sandbox_id, timeout=self._config.timeout, api_key=self._key)
        return box, await box.files.read(_cloud.TOKEN, user="root")

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Bring a bundle into a snapshot of the template, unless there is one of the same content already.

        RuntimeError says why it cannot be; what was begun is then removed.
        """
        if platform is not None and platform != PLATFORM:
            raise ValueError(f"E2B runs {PLATFORM}, not {platform}")
        found = await _cloud.look(bundle, PLATFORM)
        label = f"agentix-{found.key(self._template)}"
        snapshot = await self._snapshot_named(label)
        state = "there already"
        if snapshot is None:
            snapshot = await self._make_snapshot(found, label)
            state = "uploaded"
        return DeployedBundle(
            bundle=SCHEME + snapshot,
            platform=PLATFORM,
            metadata={
                "digest": found.digest,
                "name": name or found.label,
                "snapshot": label,
                "state": state,
                "template": self._template,
            },
        )

    # ---- bundles ----

    async def _place_of(self, bundle: str) -> str:
        if bundle.startswith(SCHEME):
            return bundle
        return await self._deployed.get(bundle, lambda: self._deploy(Path(bundle)))

    async def _deploy(self, bundle: Path) -> str:
        return (await self.deploy_bundle(bundle)).bundle

    async def _snapshot_named(self, label: str) -> str | None:
        from e2b import AsyncSandbox

        with self._told("looking for the bundle's snapshot"):
            pages = AsyncSandbox.list_snapshots(name=label, api_key=self._key)
            while pages.has_next:
                for snapshot in await pages.next_items():
                    return snapshot.snapshot_id
        return None

    async def _make_snapshot(self, bundle: _cloud.Bundle, label: str) -> str:
        async with _cloud.packed(bundle) as archive, self._new(self._template) as box:
            with self._told("uploading the bundle"), archive.open("rb") as file:
                await box.files.write(ARCHIVE, file, user="root")  # pyright: ignore[reportUnknownMemberType]
            await self._unpack(box)
            with self._told("taking the bundle's snapshot"):
                snapshot = (await box.create_snapshot(label)).snapshot_id
            await self.delete(SandboxId(box.sandbox_id))
            return snapshot

    async def _unpack(self, box: AsyncSandbox) -> None:
        from e2b import CommandExitException

        with self._told("unpacking the bundle"):
            try:
                command = f"{_cloud.unpack_command(ARCHIVE)}; rm -f {ARCHIVE}"
                await box.commands.run(command, user="root", timeout=UNPACK_SECONDS, request_timeout=UNBOUNDED)
            except CommandExitException as error:
                said = f"{error.stdout}{error.stderr}".strip()
                raise RuntimeError(f"unpacking the bundle failed: exit code {error.exit_code}\n{said}") from None

    # ---- sandboxes ----

    @contextlib.asynccontextmanager
    async def _new(self, template: str, labels: dict[str, str] | None = None) -> AsyncGenerator[AsyncSandbox]:
        """Make a sandbox that is ended if the block fails, even if its id was never heard."""
        from e2b import AsyncSandbox, NotFoundException

        mark = secrets.token_hex(16)
        made: list[AsyncSandbox] = []
        async with _cloud.undoing(lambda error: self._end(made, mark, error)):
            try:
                with self._told("creating the sandbox"):
                    making = AsyncSandbox.create(
                        template,
                        timeout=self._config.first_timeout(),
                        metadata={LABEL: mark, **(labels or {})},
                        network={"allow_public_traffic": False},
                        idempotency_key=mark,
                        api_key=self._key,
                    )
                    await _cloud.whole(making, made.append)
            except RuntimeError as error:
                if isinstance(_cloud.reason_of(error), NotFoundException):
                    self._deployed.forget(SCHEME + template)
                raise
            yield made[0]

    async def _end(self, made: list[AsyncSandbox], mark: str, error: BaseException) -> None:
        from e2b import AsyncSandbox, SandboxQuery

        if not made and isinstance(error, RuntimeError) and _was_refused(_cloud.reason_of(error)):
            return
        with self._told("ending the sandbox"):
            if made:
                await made[0].kill()
                return
            pages = AsyncSandbox.list(query=SandboxQuery(metadata={LABEL: mark}), api_key=self._key)
            while pages.has_next:
                for info in await pages.next_items():
                    await AsyncSandbox.kill(info.sandbox_id, api_key=self._key)

    async def _start(self, box: AsyncSandbox, env: dict[str, str]) -> Sandbox:
        token = secrets.token_hex(32)
        port = int(env["AGENTIX_BIND_PORT"])
        with self._told("starting the sandbox"):
            await box.files.write(_cloud.TOKEN, token, user="root")  # pyright: ignore[reportUnknownMemberType]
            async with asyncio.timeout(START_SECONDS):
                running = await box.commands.run(
                    _cloud.start_command(),
                    background=True,
                    envs=env,
                    user="root",
                    timeout=0,
                    cwd="/",
                    request_timeout=UNBOUNDED,
                )
            try:
                url, headers = _road(box, port)
                await _cloud.until_ready(
                    url, token, headers, self._config.health_timeout, lambda: self._how_it_ended(running)
                )
            finally:
                await running.disconnect()
            if self._config.timeout != self._config.first_timeout():
                await box.set_timeout(self._config.timeout)
        return self._handle(box, token, port)

    async def _how_it_ended(self, running: AsyncCommandHandle[str]) -> str:
        from e2b import CommandExitException

        try:
            with _cloud.true_cancellation():
                result: Any = await running.wait()
        except CommandExitException as error:
            result = error
        except Exception:
            # The stream was cut, which says nothing of the runtime: whether that answers will tell.
            result = await asyncio.get_running_loop().create_future()
        return f"exit code {result.exit_code}\n{result.stdout}{result.stderr}".strip()

    def _handle(self, box: AsyncSandbox, token: str, port: int) -> Sandbox:
        url, headers = _road(box, port)
        self._known[box.sandbox_id] = box, token
        sandbox = Sandbox(sandbox_id=SandboxId(box.sandbox_id), runtime_url=url, token=token, headers=headers)
        _lease.keep(sandbox, self._config.timeout / _lease.RENEWALS, self._renew)
        return sandbox

    async def _renew(self, sandbox: Sandbox) -> None:
        from e2b import AsyncSandbox

        await AsyncSandbox.set_timeout(sandbox.sandbox_id, self._config.timeout, api_key=self._key)

    def _told(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return _cloud.told(doing, self._key)


def _was_refused(cause: BaseException | None) -> bool:
    """Tell whether the service said no, so that there is nothing to undo."""
    from e2b import AuthenticationException, InvalidArgumentException, NotFoundException

    return isinstance(cause, (AuthenticationException, InvalidArgumentException, NotFoundException))


def _check(config: SandboxConfig) -> None:
    if config.platform not in (None, PLATFORM):
        raise ValueError(f"SandboxConfig.platform: E2B runs {PLATFORM}, not {config.platform}")
    if config.resource is not None and config.resource != type(config.resource)():
        raise ValueError(
            "SandboxConfig.resource: E2B's templates have their resources; choose another template instead"
        )


def _road(box: AsyncSandbox, port: int) -> tuple[str, dict[str, str]]:
    """Return the address of a port and the headers by which the service lets one pass."""
    url = box.connection_config.get_sandbox_direct_url(box.sandbox_id, box.sandbox_domain, port)
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": str(port)}
    if box.traffic_access_token:
        headers["e2b-traffic-access-token"] = box.traffic_access_token
    return url, headers
