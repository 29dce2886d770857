"""No planted secret comes through, wherever it stands; what is masked is listed without its value."""

from __future__ import annotations

import base64
import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bundle.redaction import Redactor
from console.core.secrets import MASK

SECRET = st.tuples(
    st.text(string.ascii_letters, min_size=5, max_size=12),
    st.text(string.digits, min_size=2, max_size=6),
    st.text(string.ascii_letters, min_size=5, max_size=12),
).map("".join)

TEXTS = (
    "HF_TOKEN={s}",
    "export DB_PASSWORD='{s}'",
    "Environment=PLAIN_NAME={s}",
    'Environment="A=b" "MINE={s}"',
    "PodmanArgs=--env=MINE={s} --gpus all",
    "podman run -e MINE={s} image",
    "podman run --env 'MINE={s}' image",
    "--http-restricted-api=model-repository:admin={s}",
    "--api-key {s}",
    "Authorization: Bearer {s}",
    "authorization: Basic {s}",
    "https://user:{s}@registry.example/v2/",
    "https://{s}@registry.example/v2/",
    '{{"auths": {{"nvcr.io": {{"auth": "{s}"}}}}}}',
    '"identitytoken": "{s}"',
    "https://bucket.s3/x?X-Amz-Signature={s}&y=1",
    "https://store/x?sig={s}",
    "Set-Cookie: session={s}; Path=/",
    "curl -u admin:{s} http://x",
    "podman login -u admin -p {s} nvcr.io",
    "machine nvcr.io login $oauthtoken password {s}",
    "the password is {s}",
    "token glpat-{s}0123456789",
    "key hf_{s}0123456789 used",
    "NVAPI nvapi-{s}0123456789",
    'parameters: {{ key: "api_token" value: {{ string_value: "{s}" }} }}',
    "containerEdits:\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  - LICENCE_CODE={s}\n",
    '{{"containerEdits": {{"env": ["NVIDIA_VISIBLE_DEVICES=void", "LICENCE_CODE={s}"]}}}}',
    "-----BEGIN PRIVATE KEY-----\nMIIE{s}\n{s}==\n-----END PRIVATE KEY-----",
    '"-----BEGIN RSA PRIVATE KEY-----\\nProc-Type: 4,ENCRYPTED\\nMIIE{s}\\n-----END RSA PRIVATE KEY-----"',
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl{s}",
)


@given(SECRET, st.sampled_from(TEXTS), st.sampled_from(["", "/etc/containers/systemd/t.container", "/etc/x.env"]))
@settings(max_examples=400, deadline=None)
def test_texts(secret: str, form: str, path: str) -> None:
    redactor = Redactor()
    told = redactor.text("part", f"before\n{form.format(s=secret)}\n-- after", path)
    told = redactor.again("part", told)
    assert secret not in told
    assert MASK in told
    assert told.startswith("before\n")
    assert told.endswith("after"), "what stands after it stays"
    listed = redactor.redactions
    assert listed
    assert not any(secret in f"{one.part}{one.what}{one.places}" for one in listed)


INSPECTS: tuple[Any, ...] = (
    {"Config": {"Env": ["PATH=/bin", "MINE={s}"]}},
    {"Config": {"Env": ["HF_TOKEN={s}"]}},
    {"Config": {"CreateCommand": ["podman", "run", "-e", "MINE={s}", "image"]}},
    {"Config": {"CreateCommand": ["podman", "run", "--env=MINE={s}", "image"]}},
    {"Args": ["--http-restricted-api=model-repository:admin={s}"]},
    {"Config": {"Labels": {"db_password": "{s}"}}},
    {"Config": {"Healthcheck": {"Test": ["CMD-SHELL", "curl -H 'Authorization: Bearer {s}' http://x"]}}},
    {"parameters": {"api_key": {"string_value": "{s}"}}},
    {"HostConfig": {"RegistryAuth": "{s}"}},
    {"containerEdits": {"env": ["SERIAL_OF={s}"]}},
    {"deep": [[{"x": {"password": "{s}"}}]]},
    {"note": "-----BEGIN PRIVATE KEY-----\nMIIE{s}\n-----END PRIVATE KEY-----\n"},
    {"glpat-{s}0123456789": "as a key"},
)


def _filled(tree: Any, secret: str) -> Any:
    return json.loads(json.dumps(tree).replace("{s}", secret))


@given(SECRET, st.sampled_from(INSPECTS))
@settings(max_examples=200, deadline=None)
def test_json(secret: str, tree: Any) -> None:
    redactor = Redactor()
    told = json.dumps(redactor.json("inspect.json", _filled(tree, secret)))
    assert secret not in told
    assert MASK in told
    assert redactor.redactions[0].part == "inspect.json"


@given(SECRET, st.sampled_from(INSPECTS[:9]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_stood_under_a_secret_name_is_masked_everywhere_else(secret: str, tree: Any, log_first: bool) -> None:
    redactor = Redactor()
    log = f"E1130 server said {secret} to nobody"
    if log_first:
        log = redactor.text("log", log)
    redactor.json("inspect.json", _filled(tree, secret))
    if not log_first:
        log = redactor.text("log", log)
    if len(secret) >= 12 or "MINE" not in json.dumps(tree):
        assert redactor.again("log", log) == f"E1130 server said {MASK} to nobody"


def test_known_secrets_of_the_settings() -> None:
    redactor = Redactor(["letmein"])
    assert redactor.again("x", redactor.text("x", "sent letmein to it")) == f"sent {MASK} to it"
    assert redactor.json("y", {"a": "letmein", "letmein": 1}) == {"a": MASK, "letmein": 1}
    assert redactor.again("y", '{"letmein": 1}') == f'{{"{MASK}": 1}}', "keys too, when the part is written"


def test_the_beginning_of_a_secret_where_a_text_was_cut_off() -> None:
    redactor = Redactor(["letmein-4711-please"])
    assert redactor.again("x", "store: password of letmein-47… +100") == f"store: password of {MASK}… +100"
    assert redactor.again("x", '"token glpat-Z… +9"') == f'"token {MASK}… +9"'
    assert redactor.again("x", "the engine plan file is not compati… +12") == "the engine plan file is not compati… +12"


def test_a_login_in_base64() -> None:
    login = base64.b64encode(b"admin:secret").decode()
    assert Redactor().text("x", f"header Basic {login} sent") == f"header Basic {MASK} sent"
    assert Redactor().text("x", "Basic Authentication failed") == "Basic Authentication failed"


@pytest.mark.parametrize(
    "text",
    [
        "I0704 13:39:57.501 1 server.cc:674] successfully loaded 'ranking'",
        "Error Code 1: Serialization (Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.)",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "GPU-5f1e4a9c-1111-2222-3333-444455556666",
        'parameters: { key: "tokenizer_dir" value: { string_value: "/models/x/tokenizer" } }',
        "max_tokens=512",
        "CUDA_VERSION=12.4.1",
        "/opt/tritonserver/backends/python/libtriton_python.so",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=tritonserver, GPU has fallen off the bus.",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.again("x", redactor.text("x", text)) == text
    assert redactor.redactions == ()


def test_names_of_the_box_are_not_learned() -> None:
    redactor = Redactor(harmless=["ranking-model-2"])
    told = redactor.json("i", {"Config": {"Env": ["SERVED=ranking-model-2", "OTHER_CODE=qx81-zz93-ttop"]}})
    assert told == {"Config": {"Env": [f"SERVED={MASK}", f"OTHER_CODE={MASK}"]}}
    assert redactor.again("log", "ranking-model-2 and qx81-zz93-ttop") == f"ranking-model-2 and {MASK}"


def test_accounts_in_paths() -> None:
    assert Redactor().text("x", "/home/alice/models/a") == "/home/USER/models/a"
    assert Redactor(keep_paths=True).text("x", "/home/alice/models/a") == "/home/alice/models/a"
    redactor = Redactor()
    assert redactor.json("x", {"/home/alice/a": "/home/alice"}) == {"/home/USER/a": "/home/USER"}
    assert redactor.redactions[0].what == "account in a path"


def test_the_list_says_where() -> None:
    redactor = Redactor()
    redactor.text("triton.log", "a\nHF_TOKEN=abcdef123\nb\nHF_TOKEN=abcdef123")
    redactor.json("inspect.json", {"Config": {"Env": ["X=1", "MINE=zz"]}})
    assert [(one.part, one.what, one.count, one.places) for one in redactor.redactions] == [
        ("inspect.json", "MINE", 1, ("Config.Env[1]",)),
        ("inspect.json", "X", 1, ("Config.Env[0]",)),
        ("triton.log", "HF_TOKEN", 2, ("line 2", "line 4")),
    ]


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    redactor = Redactor()
    redactor.again("x", redactor.text("x", text))
    redactor.json("y", {"a": [text, {text: text}]})


def test_strings_of_recordings_keep_their_shape() -> None:
    redactor = Redactor()
    tree = {"key": 1, "r": {"gpu": [1, 2, ["a", None, True, 1.5]]}, "l": [["x", "password=hunter22"]]}
    assert redactor.strings("r", tree) == {**tree, "l": [["x", f"password={MASK}"]]}
