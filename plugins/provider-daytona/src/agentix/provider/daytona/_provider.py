"""The provider: which calls of the SDK make a sandbox, in which order, and which undo it.

Bundles lie in a volume of the account, each as one packed file beside a second one that says that it is whole; such a
volume is an object store, which keeps files well and trees badly. A sandbox is made of its image with the volume
mounted, unpacks the bundle for itself, and starts the runtime in a session of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import warnings
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.provider import _checks, _cloud, _lease
from agentix.provider.base import (
    DeployedBundle,
    Sandbox,
    SandboxConfig,
    SandboxId,
    SandboxProvider,
    SandboxResource,
)

from ._config import DaytonaProviderConfig

if TYPE_CHECKING:
    from daytona import AsyncDaytona, AsyncSandbox, CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams

SCHEME = "daytona:"
"""How `SandboxConfig.bundle` names a bundle that is in the volume already."""
KEY = re.compile(r"[0-9a-f]{24}")
PLATFORM = "linux/amd64"
VOLUME = "agentix-bundles"
MOUNT = "/mnt/agentix"
ROOT = "/tmp/.agentix"
"""The sandbox's own directory of this backend: whoever the image's user is, it can be made there."""
SESSION = "agentix"
PORT_LABEL = "agentix-port"
UNPACK_SECONDS = 600
GRACE = 10.0
"""Seconds that a request to make a sandbox may go on after a cancellation, so that one knows what came of it."""
ENDED_PAUSE = 0.5
ENDED_FAILURES = 5
"""Errors in a row, of asking whether the runtime has ended, that are passed over."""
VOLUME_PAUSE = 0.5


class DaytonaProvider(SandboxProvider):
    """Bring a bundle to Daytona, into a volume that sandboxes unpack it from."""

    def __init__(self, config: DaytonaProviderConfig | None = None) -> None:
        self._config = config if config is not None else DaytonaProviderConfig()
        _checks.instance("config", self._config, DaytonaProviderConfig)
        self._config.validate()
        self._key = self._config.key()
        self._deployed = _cloud.Deployed()

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Start a sandbox and return it when its runtime has proved to be there.

        RuntimeError says which step failed, with the runtime's last output; the sandbox is deleted then, and after a
        cancellation too.
        """
        config.validate()
        _check(config)
        place = await self._place_of(config.bundle)
        env = _cloud.environment(config, ROOT)
        async with self._client() as client:
            volume = await self._volume(client)
            params = self._from_image(config, volume, env["AGENTIX_BIND_PORT"])
            async with self._new(client, params) as box:
                await self._unpack(box, place)
                return await self._start(box, env)

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Delete a sandbox; an unknown id is passed over. RuntimeError if the service could not do it: try again."""
        _checks.sandbox_id(sandbox_id)
        from daytona import DaytonaNotFoundError

        async with self._client() as client:
            with self._told(f"deleting sandbox {sandbox_id}"), contextlib.suppress(DaytonaNotFoundError):
                await client.delete(await client.get(sandbox_id))

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Give a handle of a running sandbox, whoever made it with this account. KeyError if there is none."""
        _checks.sandbox_id(sandbox_id)
        from daytona import DaytonaNotFoundError, SandboxState

        unknown = KeyError(f"no sandbox {sandbox_id!r} runs there; it may have ended or been deleted")
        async with self._client() as client:
            with self._told(f"looking for sandbox {sandbox_id}"):
                try:
                    box = await client.get(sandbox_id)
                    if PORT_LABEL not in box.labels or box.state != SandboxState.STARTED:
                        raise unknown
                    token = (await box.fs.download_file(f"{ROOT}/token")).decode()
                    return await self._handle(box, token, int(box.labels[PORT_LABEL]))
                except DaytonaNotFoundError:
                    raise unknown from None

    async def deploy_bundle(
        self, bundle: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Bring a bundle into the volume, unless one of the same content is there already.

        RuntimeError says why it cannot be; the sandbox by which it was brought there is deleted in any case.
        """
        if platform is not None and platform != PLATFORM:
            raise ValueError(f"Daytona runs {PLATFORM}, not {platform}")
        found = await _cloud.look(bundle, PLATFORM)
        key = found.key()
        async with self._client() as client:
            volume = await self._volume(client)
            async with self._new(client, self._for_upload(volume)) as box:
                state = await self._upload(box, found, key)
                with self._told("deleting the sandbox that brought the bundle"):
                    await client.delete(box)
        return DeployedBundle(
            bundle=SCHEME + key,
            platform=PLATFORM,
            metadata={"digest": found.digest, "name": name or found.label, "state": state, "volume": VOLUME},
        )

    # ---- bundles ----

    async def _place_of(self, bundle: str) -> str:
        if bundle.startswith(SCHEME):
            key = bundle.removeprefix(SCHEME)
            if not KEY.fullmatch(key):
                raise ValueError(f"SandboxConfig.bundle: {bundle!r} is not what `agentix deploy daytona` prints")
            return key
        found = await self._deployed.get(bundle, lambda: self._deploy(Path(bundle)))
        return found.removeprefix(SCHEME)

    async def _deploy(self, bundle: Path) -> str:
        return (await self.deploy_bundle(bundle)).bundle

    async def _volume(self, client: AsyncDaytona) -> str:
        """Return the volume's id, having made it if need be, when it can be used."""
        with self._told("looking for the volume of bundles"):
            async with asyncio.timeout(self._config.create_timeout):
                while True:
                    volume = await client.volume.get(VOLUME, create=True)
                    if volume.state == "ready":
                        return volume.id
                    if volume.state == "error":
                        raise RuntimeError(f"the volume {VOLUME} cannot be used: {volume.error_reason}")
                    await asyncio.sleep(VOLUME_PAUSE)

    async def _upload(self, box: AsyncSandbox, bundle: _cloud.Bundle, key: str) -> str:
        target, whole = f"{MOUNT}/{key}.tar.gz", f"{MOUNT}/{key}.ok"
        code, _ = await self._run(box, "looking for the bundle", f"test -e {whole}")
        if code == 0:
            return "there already"
        async with _cloud.packed(bundle) as archive:
            with self._told("uploading the bundle"):
                await box.fs.upload_file(str(archive), "/tmp/bundle.tar.gz")
        command = f"cp /tmp/bundle.tar.gz {target} && cmp /tmp/bundle.tar.gz {target} && echo {bundle.digest} > {whole}"
        await self._must(box, "keeping the bundle", command)
        return "uploaded"

    async def _unpack(self, box: AsyncSandbox, key: str) -> None:
        missing = f"test -e {MOUNT}/{key}.ok || {{ echo 'the volume {VOLUME} does not have it: deploy it'; exit 9; }}"
        try:
            await self._must(
                box, "unpacking the bundle", f"{missing}; {_cloud.unpack_command(f'{MOUNT}/{key}.tar.gz')}"
            )
        except RuntimeError:
            self._deployed.forget(SCHEME + key)
            raise

    # ---- sandboxes ----

    def _from_image(self, config: SandboxConfig, volume: str, port: str) -> CreateSandboxFromImageParams:
        from daytona import CreateSandboxFromImageParams, Resources

        resource = config.resource or SandboxResource()
        memory = resource.memory_bytes()
        return CreateSandboxFromImageParams(
            image=config.image,
            resources=Resources(
                cpu=None if resource.cpu is None else math.ceil(resource.cpu),
                memory=None if memory is None else math.ceil(memory / (1 << 30)),
                gpu=resource.gpu,
            ),
            labels={PORT_LABEL: port},
            **self._common(volume),
        )

    def _for_upload(self, volume: str) -> CreateSandboxFromSnapshotParams:
        from daytona import CreateSandboxFromSnapshotParams

        return CreateSandboxFromSnapshotParams(**self._common(volume))

    def _common(self, volume: str) -> dict[str, Any]:
        from daytona import VolumeMount

        return {
            "name": f"agentix-{secrets.token_hex(12)}",
            "public": False,
            "auto_stop_interval": self._config.first_minutes(),
            "ephemeral": True,
            "volumes": [VolumeMount(volume_id=volume, mount_path=MOUNT)],
        }

    @contextlib.asynccontextmanager
    async def _new(
        self, client: AsyncDaytona, params: CreateSandboxFromImageParams | CreateSandboxFromSnapshotParams
    ) -> AsyncGenerator[AsyncSandbox]:
        """Make a sandbox that is deleted if the block fails, even if its id was never heard: its name is known."""
        made: list[AsyncSandbox] = []
        async with _cloud.undoing(lambda error: self._end(client, made, str(params.name), error)):
            with self._told("creating the sandbox"):
                making = client.create(params, timeout=self._config.create_timeout)
                await _cloud.whole(making, made.append, GRACE)
            yield made[0]

    async def _end(self, client: AsyncDaytona, made: list[AsyncSandbox], name: str, error: BaseException) -> None:
        from daytona import DaytonaAuthenticationError, DaytonaBadRequestError, DaytonaNotFoundError

        refusals = (DaytonaAuthenticationError, DaytonaBadRequestError)
        if not made and isinstance(_cloud.reason_of(error), refusals):
            return  # the service said no
        with self._told("deleting the sandbox"), contextlib.suppress(DaytonaNotFoundError):
            await client.delete(made[0] if made else await client.get(name))

    async def _start(self, box: AsyncSandbox, env: dict[str, str]) -> Sandbox:
        from daytona import FileUpload, SessionExecuteRequest

        token = secrets.token_hex(32)
        variables = "".join(f"{name}={value}\0" for name, value in env.items()).encode(errors="surrogateescape")
        with self._told("starting the sandbox"):
            await box.fs.create_folder(ROOT, "700")
            await box.fs.upload_files(
                [FileUpload(token.encode(), f"{ROOT}/token"), FileUpload(variables, f"{ROOT}/environ")]
            )
            command = f"export AGENTIX_ENV_FILE={ROOT}/environ; {_cloud.start_command(ROOT)}"
            await box.process.create_session(SESSION)
            running = await box.process.execute_session_command(
                SESSION, SessionExecuteRequest(command=command, run_async=True)
            )
            sandbox = await self._handle(box, token, int(env["AGENTIX_BIND_PORT"]))
            try:
                await _cloud.until_ready(
                    sandbox.runtime_url,
                    token,
                    sandbox.headers,
                    self._config.health_timeout,
                    lambda: self._how_it_ended(box, running.cmd_id),
                )
                if self._config.minutes() != self._config.first_minutes():
                    await box.set_autostop_interval(self._config.minutes())
            except BaseException:
                await sandbox.aclose()
                raise
        return sandbox

    async def _how_it_ended(self, box: AsyncSandbox, command: str) -> str:
        from daytona import DaytonaError

        code: int | None = None
        failures = 0
        while code is None:
            await asyncio.sleep(ENDED_PAUSE)
            try:
                with _cloud.true_cancellation():
                    code = (await box.process.get_session_command(SESSION, command)).exit_code
                failures = 0
            except DaytonaError:
                failures += 1
                if failures > ENDED_FAILURES:
                    raise
        said = (await box.process.get_session_command_logs(SESSION, command)).output or ""
        return f"exit code {code}\n{said}".strip()

    async def _handle(self, box: AsyncSandbox, token: str, port: int) -> Sandbox:
        link = await box.get_preview_link(port)
        headers = {"X-Daytona-Preview-Token": link.token, "X-Daytona-Skip-Preview-Warning": "true"}
        sandbox = Sandbox(sandbox_id=SandboxId(box.id), runtime_url=link.url, token=token, headers=headers)
        if self._config.lease is not None:
            _lease.keep(sandbox, self._config.minutes() * 60 / _lease.RENEWALS, self._renew)
        return sandbox

    async def _renew(self, sandbox: Sandbox) -> None:
        async with self._client() as client:
            await (await client.get(sandbox.sandbox_id)).refresh_activity()

    # ---- the SDK ----

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncGenerator[AsyncDaytona]:
        """A client of the running loop, closed afterwards: it holds connections.

        It asks for states instead of opening a WebSocket that would tell of them: a client that lives for a moment may
        have to close that while it is being opened, and leaves a connection behind then.
        """
        from daytona import AsyncDaytona, DaytonaConfig

        with self._told("reaching Daytona"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            settings = DaytonaConfig(
                api_key=self._key,
                api_url=self._config.api_url,
                target=self._config.target,
                use_deprecated_polling=True,
            )
            client = AsyncDaytona(settings)
        try:
            yield client
        finally:
            await client.close()

    async def _run(self, box: AsyncSandbox, doing: str, command: str) -> tuple[int, str]:
        with self._told(doing):
            done = await box.process.exec(f"sh -c {_quoted(command)}", cwd="/", timeout=UNPACK_SECONDS)
        return int(done.exit_code), str(done.result)

    async def _must(self, box: AsyncSandbox, doing: str, command: str) -> None:
        code, said = await self._run(box, doing, f"{{ {command}; }} 2>&1")
        if code:
            raise RuntimeError(f"{doing} failed: exit code {code}\n{said.strip()}")

    def _told(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return _cloud.told(doing, self._key)


def _check(config: SandboxConfig) -> None:
    if config.platform not in (None, PLATFORM):
        raise ValueError(f"SandboxConfig.platform: Daytona runs {PLATFORM}, not {config.platform}")


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
