#!/usr/bin/env bash
# scripts/build notices installed and upgraded packages; scripts/check refuses a build without the unit tests;
# .ci/run counts all tests that ran.
. "$(dirname "$0")/../lib.sh"
requires make cc pkg-config

# A tree of one C file that includes a "system" header; its configure and its Makefile do as little as they
# can.
tree=$T/tree
mkdir -p "$tree/scripts" "$T/pkgconfig" "$T/include"
cp "$top_srcdir"/scripts/{build,check} "$tree/scripts/"
touch "$tree/Makefile.in" "$tree/configure.ac"
export PKG_CONFIG_PATH=$T/pkgconfig
echo '#define ANSWER 1' >"$T/include/answer.h"
printf '#include <answer.h>\nint main(void) { return ANSWER; }\n' >"$tree/answer.c"
cat >"$tree/configure" <<END
#!/bin/sh
echo "\$@" >>"$T/configured"
echo 'S["HAVE_CMOCKA_TRUE"]="#"' >config.status
mkdir -p .deps tests
cat >Makefile <<'MAKE'
all: answer
answer: answer.o
	\$(CC) -o \$@ answer.o
answer.o: $tree/answer.c
	\$(CC) -MD -MP -MF .deps/answer.Po -I$T/include -c $tree/answer.c
	echo compiled >>$T/compiled
-include .deps/answer.Po
MAKE
END
chmod +x "$tree/configure"

build() { "$tree/scripts/build" "$@"; }
# counts WHAT CONFIGURED COMPILED: how often each was done so far.
counts() {
	equal "$1" "$2 $3" "$(wc -l <"$T/configured") $(wc -l <"$T/compiled")"
}
answer() {
	local rc=0
	"$tree/build/answer" || rc=$?
	echo "$rc"
}

check "a tree is built" build -j2
counts "the tree is configured and compiled once" 1 1
equal "-j2 is not passed to configure" "--quiet" "$(cat "$T/configured")"
check "a second build succeeds" build -j 1
counts "a second build configures and compiles nothing" 1 1

sleep 1 # a folder's time is compared by the second
touch "$T/pkgconfig/cmocka.pc"
check "a build after a package was installed succeeds" build
counts "a new package configures the tree again" 2 1
check "the next build succeeds" build
counts "the next build does not configure the tree" 2 1

# As dpkg does: a new file with an old date replaces the old one.
echo '#define ANSWER 2' >"$T/include/answer.h.dpkg-new"
touch -d 2001-01-01 "$T/include/answer.h.dpkg-new"
mv "$T/include/answer.h.dpkg-new" "$T/include/answer.h"
check "a build after a header was upgraded succeeds" build
counts "a file that includes the header is compiled again" 2 2
equal "the file is compiled with the new header" 2 "$(answer)"
check "the build after that succeeds" build
counts "the build after that does not compile the file" 2 2

check "a build with other arguments succeeds" build --enable-x
counts "other arguments configure the tree again" 3 2

check_not "check: a build without the unit tests is a failure" "$tree/scripts/check" --no-setup -j2
"$tree/scripts/check" --no-setup >"$T/out" 2>&1 || true
equal "check: that failure is the only result" "0 passed, 1 failed" "$(tail -n 1 "$T/out")"
check "check: the reason is named" grep -q 'no cmocka' "$T/out"

mkdir -p "$T/ci/.ci" "$T/ci/scripts"
cp "$top_srcdir/.ci/run" "$T/ci/.ci/"
# counted BARE-ROOT CHECK: prints the last line and the exit code of .ci/run if the two scripts run these
# commands.
counted() {
	local rc=0
	printf '#!/bin/sh\n' | tee "$T/ci/scripts/setup-debian" >"$T/ci/scripts/bare-root"
	echo "$1" >>"$T/ci/scripts/bare-root"
	printf '#!/bin/sh\n%s\n' "$2" >"$T/ci/scripts/check"
	chmod +x "$T"/ci/scripts/*
	"$T/ci/.ci/run" >"$T/out" 2>&1 || rc=$?
	echo "$(tail -n 1 "$T/out"); $rc"
}
equal "the bare root's tests are counted" "2 passed, 0 failed, 1 skipped; 0" \
	"$(counted 'echo 2 passed, 0 failed, 1 skipped' 'echo 3 passed, 0 failed')"
equal "failures of the bare root's tests are counted" "5 passed, 1 failed, 0 skipped; 1" \
	"$(counted 'echo 5 passed, 1 failed; exit 1' 'echo 3 passed, 0 failed')"
equal "an end without a count is a failure" "0 passed, 1 failed, 0 skipped; 1" \
	"$(counted 'echo killed; exit 137' 'echo 3 passed, 0 failed')"
equal "without a bare root one test counts as skipped, and the tests run here" \
	"6 passed, 0 failed, 1 skipped; 0" \
	"$(counted 'exit 77' 'echo 3 passed, 0 failed')"
check "the output says that the bare root was skipped" grep -q '^SKIPPED  SKIPPED  SKIPPED' "$T/out"
