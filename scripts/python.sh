# shellcheck shell=bash
# Sourced by scripts/start and scripts/test: finds a fitting Python and keeps .venv installed.
# RHEL 8's own python3 is 3.6; python3.11 and python3.12 are packages beside it.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${GPUCONSOLE_VENV:-$ROOT/.venv}"

say() { printf '%s\n' "$*" >&2; }

# A Python that can make an environment: 3.11 or newer, with venv and ensurepip.
find_python() {
    local name
    for name in "${GPUCONSOLE_PYTHON:-}" python3.13 python3.12 python3.11 python3; do
        [ -n "$name" ] || continue
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

say_which_package() {
    say "gpuconsole needs Python 3.11 or newer with its venv module, and none was found. Install one, then run this again:"
    if command -v dnf >/dev/null 2>&1; then
        say "    sudo dnf install python3.12        (RHEL, Rocky, Alma 8 and 9; python3.11 does as well)"
    elif command -v apt-get >/dev/null 2>&1; then
        say "    sudo apt-get install python3 python3-venv        (Debian 12, Ubuntu 24.04; Ubuntu 22.04: python3.11 python3.11-venv)"
    elif [ "$(uname -s)" = Darwin ]; then
        say "    brew install python@3.12"
    else
        say "    your distribution's python3.12 or python3.11 package"
    fi
}

# ensure_venv EXTRAS: makes $VENV and installs the project when pyproject.toml or the extras changed. Idempotent.
ensure_venv() {
    local extras="$1" python stamp wanted
    stamp="$VENV/.installed"
    wanted="$(cksum < "$ROOT/pyproject.toml") $extras $ROOT"
    if [ -x "$VENV/bin/python" ] && [ -f "$stamp" ] && grep -qxF -- "$wanted" "$stamp"; then
        return 0
    fi
    if ! [ -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        python="$(find_python)" || { say_which_package; return 69; }
        say "making the environment $VENV with $python ($("$python" -V 2>&1))"
        "$python" -m venv --clear "$VENV" || return 69
    fi
    say "installing gpuconsole and what it needs into $VENV (about a minute the first time)"
    if ! "$VENV/bin/python" -m pip install -qq --disable-pip-version-check -e "$ROOT$extras" >&2; then
        say "the installation failed: is a Python package index reachable from here (see pip's message above)?"
        return 69
    fi
    printf '%s\n' "$wanted" >> "$stamp"
}
