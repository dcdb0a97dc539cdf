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

install -d "$root$libdir/pkgconfig" "$root$prefix/include"
install -m 755 "$built/libcryptline_capi.so" "$root$libdir/libcryptline.so.$version"
ln -sf "libcryptline.so.$version" "$root$libdir/libcryptline.so.0"
ln -sf libcryptline.so.0 "$root$libdir/libcryptline.so"
install -m 644 "$built/libcryptline_capi.a" "$root$libdir/libcryptline.a"
install -m 644 "$here/include/cryptline.h" "$root$prefix/include/cryptline.h"
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@version@|$version|" \
    "$here/cryptline.pc.in" > "$root$libdir/pkgconfig/cryptline.pc"
