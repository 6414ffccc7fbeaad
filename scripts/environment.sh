# Sourced by scripts/quickstart, scripts/test and scripts/benchmark: virtual environments with pinned versions.
# Needs: python3 (3.10 or newer, with venv). PYTHON names another interpreter.

TORCH_PIN="torch==2.13.0"   # first: anything that depends on torch would otherwise choose a build by itself
E3NN_PIN="e3nn==0.5.9"      # the version in which saving a live model fails without our patches

fail() { echo "error: $*" >&2; exit 1; }

# make_environment DIR EXTRA: cp-mace[EXTRA], editable, with the pins; a finished environment is used again,
# and one with an extra also where none is asked for.
make_environment() {
    local dir=$1 extra=$2 python=${PYTHON:-python3} stamp pins sources
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "$python is older than Python 3.10: set PYTHON"
    pins="$TORCH_PIN $E3NN_PIN" sources=$(cksum < setup.cfg)
    stamp="$pins $extra $sources"
    case "$(cat "$dir/.complete" 2>/dev/null)" in
        "$stamp" | "$pins "${extra:-*}" $sources") return 0 ;;
    esac
    echo "Making the virtual environment $dir ($TORCH_PIN, $E3NN_PIN) ..."
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir" || fail "python3 -m venv failed: on Debian/Ubuntu install python3-venv"
    "$dir/bin/python" -m pip install --quiet "$TORCH_PIN"
    "$dir/bin/python" -m pip install --quiet "$E3NN_PIN" --editable ".${extra:+[$extra]}"
    echo "$stamp" > "$dir/.complete"
}

# overlay_environment DIR BASE PACKAGE...: BASE's packages with PACKAGE... on top (torch is not installed a second time).
overlay_environment() {
    local dir=$1 base=$2 site; shift 2
    [ "$(cat "$dir/.complete" 2>/dev/null)" = "$*" ] && return 0
    echo "Making the virtual environment $dir ($*) ..."
    [ -x "$dir/bin/python" ] || "$base/bin/python" -m venv "$dir"
    site=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$site" > "$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base-environment.pth"
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    echo "$*" > "$dir/.complete"
}
