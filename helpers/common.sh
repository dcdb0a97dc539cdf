# Read by each helper. They get one JSON object on standard input and print another (docs/key-commands.md). Secrets stay in
# variables, which are not exported, and go through pipes: others can list the arguments of programs.
# shellcheck shell=sh
set -u
umask 077
export LC_ALL=C

# fail CODE MESSAGE: denied, unavailable or corrupt, and why.
fail() {
    jq -cn --arg code "$1" --arg message "$2" '{error: {code: $code, message: $message}}'
    if [ "$1" = unavailable ]; then exit 75; fi
    exit 1
}

for program in jq base64 ${needs:-}; do
    command -v "$program" >/dev/null || { echo "cryptline: this helper needs the program $program" >&2; exit 1; }
done
request=$(cat)

# field PATH: a text in the request, or nothing.
field() { printf '%s' "$request" | jq -r "$1 // empty"; }

# setting NAME VARIABLE: of the operator, by file or environment.
setting() {
    found=$(field ".operator.$1")
    if [ -z "$found" ] && [ -n "${2:-}" ]; then eval "found=\${$2:-}"; fi
    printf '%s' "$found"
}

# find_name MEMBER: has the name of a key in `found`, from the header, which anybody may have written, or from the operator,
# who then means no other one. Nothing in it leads elsewhere or looks like an option.
find_name() {
    named=$(field ".header.$1")
    meant=$(field ".operator.$1")
    if [ -n "$meant" ] && [ -n "$named" ] && [ "$named" != "$meant" ]; then
        fail denied "the header names another $1 than the settings do"
    fi
    found=${meant:-$named}
    case $found in
    '') fail denied "neither the header nor the settings name the $1" ;;
    -* | .* | */../* | */./* | */.. | */. | *//* | *[!A-Za-z0-9_./:@-]*) fail denied "the $1 is no name" ;;
    esac
}

# Text in base64 on one line.
encode() { base64 | tr -d '\n'; }

# wrapped TEXT [VERSION]: answers with what is wrapped, which is in base64 already.
wrapped() {
    [ -n "$1" ] || fail corrupt "nothing was wrapped"
    jq -cn --arg wrapped "$1" --arg version "${2:-}" \
        '{version: 1, wrapped: $wrapped} + if $version == "" then {} else {key_version: $version} end'
}

# secret TEXT: answers with a secret in base64.
secret() {
    case $1 in
    '' | *[!A-Za-z0-9+/=]*) fail corrupt "nothing was unwrapped that is a secret" ;;
    esac
    printf '{"version":1,"secret":"%s"}\n' "$1"
}

# bound TEXT: a secret behind the name of its volume, for keys that authenticate nothing beside it.
bound() {
    case $1 in
    "$(field .aad) "*) secret "${1#* }" ;;
    *) fail denied "it was wrapped for another volume" ;;
    esac
}
