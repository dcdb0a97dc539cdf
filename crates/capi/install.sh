#!/bin/sh
# Installs libcryptline: the shared and the static library, cryptline.h and cryptline.pc.
#
#   [PREFIX=/usr/local] [LIBDIR=PREFIX/lib] [DESTDIR=] crates/capi/install.sh [FOLDER]
#
# FOLDER has libcryptline_capi.so and .a where they are built already; without it they are built here.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)

if [ $# -gt 0 ]; then
    built=$1
else
    cd "$here"
    # One at a time: only a library of one kind is optimised across its crates.
    for kind in cdylib staticlib; do
        cargo rustc --quiet --release --locked --lib --crate-type "$kind"
    done
    built=${CARGO_TARGET_DIR:-$here/../../target}/release
fi

# installed MODE FROM TO
installed() {
    install -m "$1" "$2" "$root$3"
    echo "installed $root$3"
}

# stripped NAME: without what only a debugger reads. The names of functions stay, for the suppressions of valgrind.
stripped() {
    if command -v strip > /dev/null; then
        strip --strip-debug "$root$1"
    else
        echo "kept      debug information in $root$1: there is no strip (binutils)"
    fi
}

# linked TARGET NAME
linked() {
    ln -sf "$1" "$root$2"
    echo "linked    $root$2 -> $1"
}

install -d "$root$libdir/pkgconfig" "$root$prefix/include"
installed 755 "$built/libcryptline_capi.so" "$libdir/libcryptline.so.$version"
stripped "$libdir/libcryptline.so.$version"
linked "libcryptline.so.$version" "$libdir/libcryptline.so.0"
linked libcryptline.so.0 "$libdir/libcryptline.so"
installed 644 "$built/libcryptline_capi.a" "$libdir/libcryptline.a"
stripped "$libdir/libcryptline.a"
installed 644 "$here/include/cryptline.h" "$prefix/include/cryptline.h"
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@version@|$version|" \
    "$here/cryptline.pc.in" > "$root$libdir/pkgconfig/cryptline.pc"
echo "installed $root$libdir/pkgconfig/cryptline.pc"
