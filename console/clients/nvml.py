"""NVML through nvidia-ml-py, with one choke point for every call.

A function is looked up by name and asked once per target (the system, a card, a MIG device). What the target will
not learn to answer (not supported, not permitted, not in this library) is remembered and asked again only after
`open()`; what may be better next time (timeout, unknown error) is asked each time. A card that does not answer any
more raises `LostError`, so that the other cards live on; an NVML session that has ended raises SourceError.

NVML calls have no time limit: a hung driver holds the calling thread. So nothing here is shared between threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Hashable
from typing import Any

from msgspec import Struct

from console.clients import nvidia_host
from console.core.model import ErrorKind, Failure, SourceError
from console.core.text import decode, one_line

# nvmlReturn_t of nvml.h.
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28

_LASTING = frozenset(
    {
        INVALID_ARGUMENT,
        NOT_SUPPORTED,
        NO_PERMISSION,
        FUNCTION_NOT_FOUND,
        CORRUPTED_INFOROM,
        ARGUMENT_VERSION_MISMATCH,
        DEPRECATED,
    }
)
"""Answers that do not change while the session lasts."""
_LOST = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
_SESSION_ENDED = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})

_NOT_AVAILABLE = frozenset({-1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""NVML_VALUE_NOT_AVAILABLE as signed and unsigned words."""
_NO_TEXT = frozenset({"", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "ERR!", "Unknown Error"})
NOT_GIVEN = "the driver answers N/A"
UNSUPPORTED = "not supported by this card or driver"

NO_CARD = "no NVIDIA device on the PCI bus of this host"


class Absent(Struct, frozen=True):
    """Why a question has no answer; `code` is the nvmlReturn_t, None when NVML was not reached."""

    reason: str
    code: int | None = None
    lasting: bool = False
    """True when the same question would get the same answer until NVML is opened anew."""


class SessionError(SourceError):
    """Why there is no NVML session; `code` is the nvmlReturn_t, None where NVML was not reached."""

    def __init__(self, kind: ErrorKind, message: str, hint: str, code: int) -> None:
        super().__init__(kind, message, hint)
        self.code = code


class LostError(Exception):
    """A card that answers no more (NVML 15 and kin)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.failure = lost_failure(code, text)


class Target:
    """One thing to ask: the system, a card or a MIG device, with what it is known not to answer."""

    __slots__ = ("absent", "arguments")

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.absent: dict[Hashable, Absent] = {}


def number(value: Any) -> int | None:
    """The integer that NVML gave, None for its "not available"."""
    whole = int(value)
    return None if whole in _NOT_AVAILABLE else whole


def load() -> None:
    """Import the wrapper now, where there is one: in one of many busy threads that takes ten times as long."""
    with contextlib.suppress(ImportError):
        importlib.import_module("pynvml")


class Nvml:
    """One NVML session. Opened, used and closed by one thread."""

    def __init__(self, api: Any = None, root: str = "/") -> None:
        """`api` stands in for the pynvml module (same function names and NVMLError); `root` is the host's `/`."""
        self._api = api
        self._root = root
        self._errors: tuple[type[Exception], ...] = ()
        self.system = Target()
        self.calls = 0
        """Calls into the library so far: what a read costs."""

    # ------------------------------------------------------------------------------------------------------- session

    def open(self) -> None:
        """Load the library and begin; everything is asked anew. Raises SourceError with the operator's words."""
        api = self._load()
        self.system = Target()
        try:
            api.nvmlInit()
        except self._errors as error:
            raise self._session_fault(error) from error

    def close(self) -> None:
        """End the session; never raises (the driver may be gone)."""
        if self._api is None:
            return
        with contextlib.suppress(*self._errors):
            self._api.nvmlShutdown()

    def _load(self) -> Any:
        if self._api is None:
            try:
                self._api = importlib.import_module("pynvml")
            except ImportError as error:
                message = f"the Python package nvidia-ml-py cannot be loaded: {error}"
                raise SourceError(
                    "unavailable", message, "install nvidia-ml-py into gpuconsole's environment"
                ) from error
        found = (getattr(self._api, name, None) for name in ("NVMLError", "NVMLLibraryMismatchError"))
        self._errors = tuple(kind for kind in found if kind is not None)
        return self._api

    # ------------------------------------------------------------------------------------------------- the choke point

    def query(self, target: Target, function: str, *args: Hashable, key: Hashable = None) -> Any:
        """Ask one question. Returns the value (text decoded) or an `Absent`.

        `key` names the question where `args` vary from call to call. Raises `LostError` for a card that is gone and
        SourceError when the session has ended.
        """
        question = (function, args) if key is None else key
        known = target.absent.get(question)
        if known is not None:
            return known
        call = getattr(self._api, function, None)
        if call is None:
            return self._remember(target, question, f"this nvidia-ml-py has no {function}", FUNCTION_NOT_FOUND)
        self.calls += 1
        try:
            value = call(*target.arguments, *args)
        except self._errors as error:
            return self._refused(target, question, function, error)
        except (UnicodeDecodeError, TypeError, ctypes.ArgumentError) as error:
            # Old wrappers take fewer arguments, and they decode names that are not UTF-8.
            return self._remember(target, question, one_line(f"{function}: {error}", 200), None)
        return _clean(value)

    def first(self, target: Target, *functions: str) -> Any:
        """The answer of the first of these names that the library and the wrapper know."""
        answer: Any = Absent("not asked")
        for function in functions:
            answer = self.query(target, function)
            if not (isinstance(answer, Absent) and answer.code == FUNCTION_NOT_FOUND):
                break
        return answer

    def _remember(self, target: Target, question: Hashable, reason: str, code: int | None) -> Absent:
        absent = Absent(reason, code, lasting=True)
        target.absent[question] = absent
        return absent

    def _refused(self, target: Target, question: Hashable, function: str, error: Exception) -> Absent:
        code = getattr(error, "value", FUNCTION_NOT_FOUND)
        if code in _SESSION_ENDED:
            raise self._session_fault(error) from error
        if code in _LOST and target.arguments:
            raise LostError(code, _error_text(error)) from error
        reason = _reason(code, function, error)
        if code in _LASTING:
            return self._remember(target, question, reason, code)
        return Absent(reason, code)

    # -------------------------------------------------------------------------------------------------- targets, faults

    def count(self) -> int:
        """How many cards NVML lists. Raises SourceError when it does not tell."""
        answer = self.query(self.system, "nvmlDeviceGetCount")
        if isinstance(answer, Absent):
            raise SourceError(_kind(answer.code), f"NVML does not tell how many GPUs there are: {answer.reason}")
        return int(answer)

    def device(self, index: int) -> Target | Failure:
        """A card to ask, or why it cannot be asked."""
        try:
            answer = self.query(Target(index), "nvmlDeviceGetHandleByIndex")
        except LostError as lost:
            return lost.failure
        if isinstance(answer, Absent):
            return Failure(_kind(answer.code), f"GPU {index} cannot be opened: {answer.reason}", _hint(answer.code))
        return Target(answer)

    def no_card(self) -> SourceError:
        """Why NVML lists no card at all, as far as the PCI bus tells."""
        on_bus = nvidia_host.pci_devices(self._root)
        if on_bus == 0:
            return SourceError("unavailable", NO_CARD)
        where = "" if on_bus is None else f", though {_devices(on_bus)} on the PCI bus"
        return SourceError(
            "unavailable",
            f"the NVIDIA driver lists no GPU{where}",
            "the driver could not start the card: the kernel log's NVRM lines tell why",
        )

    def _session_fault(self, error: Exception) -> SourceError:
        code = getattr(error, "value", FUNCTION_NOT_FOUND)
        if code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
            return self._no_driver(code)
        if code == LIB_RM_VERSION_MISMATCH:
            return self._mismatch()
        text = "the driver was unloaded or reloaded" if code == UNINITIALIZED else _error_text(error)
        return SessionError(_kind(code), f"NVML error {code}: {text}", _hint(code), code)

    def _no_driver(self, code: int) -> SourceError:
        on_bus = nvidia_host.pci_devices(self._root)
        if on_bus == 0:
            return SessionError("unavailable", NO_CARD, f"and no NVIDIA driver either (NVML error {code})", code)
        there = "" if on_bus is None else f"; {_devices(on_bus)} on the PCI bus"
        what = "the NVIDIA driver is not loaded" if code == DRIVER_NOT_LOADED else "libnvidia-ml.so.1 was not found"
        return SessionError("unavailable", f"NVML error {code}: {what}{there}", _hint(code), code)

    def _mismatch(self) -> SourceError:
        loaded = self._loaded_library()
        disk = nvidia_host.library_version(self._root)
        kernel = nvidia_host.kernel_version(self._root)
        library = loaded or disk
        parts = f"libraries {library or '?'}, kernel {kernel or '?'}"
        if disk is not None and disk == kernel and loaded is not None and loaded != disk:
            hint = "the driver was changed while this console ran, and it holds the old library: start gpuconsole again"
        else:
            hint = _MISMATCH_HINT
        code = LIB_RM_VERSION_MISMATCH
        return SessionError("unavailable", f"NVML error {code}: {parts}", hint, code)

    def _loaded_library(self) -> str | None:
        """Version of the library that this process holds: NVML tells it without a session, as `12.570.86.15`."""
        call = getattr(self._api, "nvmlSystemGetNVMLVersion", None)
        if call is None:
            return None
        refusals: tuple[type[Exception], ...] = (*self._errors, UnicodeDecodeError)
        try:
            text = _clean(call())
        except refusals:
            return None
        head, _, driver = text.partition(".") if isinstance(text, str) else ("", "", "")
        return driver if head.isdigit() and driver.count(".") >= 1 else None


_MISMATCH_HINT = (
    "the driver was updated without a reboot: running models go on, a new container start will fail; "
    "reboot, or reload the nvidia modules while nothing uses the card"
)
_HINTS = {
    UNINITIALIZED: "NVML is opened again by itself",
    NO_PERMISSION: "run as root, or give this user access to /dev/nvidia* (group, SELinux)",
    DRIVER_NOT_LOADED: "`modprobe nvidia` says what is in the way (Secure Boot, nouveau, no module for this kernel)",
    LIBRARY_NOT_FOUND: "NVML comes with the NVIDIA driver: install it; in a container, start it with the GPU's devices",
    GPU_IS_LOST: "the kernel log's Xid lines tell more; a lost card comes back with a restart of the host",
    GPU_NOT_FOUND: "the kernel log's Xid lines tell more",
    RESET_REQUIRED: "the card wants a reset: stop what uses it, then `nvidia-smi --gpu-reset`, or restart the host",
}


def lost_failure(code: int | None, text: str) -> Failure:
    """The words for a card that answers no more."""
    words = {GPU_IS_LOST: "the GPU is lost", RESET_REQUIRED: "the GPU wants a reset", GPU_NOT_FOUND: "the GPU is gone"}
    said = text if code is None else words.get(code, text)
    return Failure("unavailable", f"NVML error {code}: {said}" if code is not None else said, _hint(code))


def _hint(code: int | None) -> str:
    return _HINTS.get(code, "the kernel log's NVRM lines may tell more") if code is not None else ""


def _kind(code: int | None) -> ErrorKind:
    if code == NO_PERMISSION:
        return "permission"
    if code == TIMEOUT:
        return "timeout"
    return "unavailable" if code in _SESSION_ENDED or code in _LOST else "protocol"


def _devices(count: int) -> str:
    return "1 NVIDIA device is" if count == 1 else f"{count} NVIDIA devices are"


def _error_text(error: Exception) -> str:
    return one_line(str(error), 200) or type(error).__name__


def _reason(code: int, function: str, error: Exception) -> str:
    if code == NOT_SUPPORTED:
        return UNSUPPORTED
    if code == NO_PERMISSION:
        return f"not permitted: {_hint(NO_PERMISSION)}"
    if code == FUNCTION_NOT_FOUND:
        return f"this driver's NVML has no {function}"
    return f"NVML error {code}: {_error_text(error)}"


def _clean(value: Any) -> Any:
    if isinstance(value, bytes):
        value = decode(value)
    if isinstance(value, str):
        text = one_line(value, 200).strip()
        return Absent(NOT_GIVEN) if text in _NO_TEXT else text
    if isinstance(value, int) and value in _NOT_AVAILABLE:
        return Absent(NOT_GIVEN)
    return value
