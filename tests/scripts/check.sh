#!/usr/bin/env bash
# scripts/check shows its progress, counts results, and runs more or fewer tests, as its options say. The tree
# here has two small tests.
. "$(dirname "$0")/../lib.sh"
requires make
unset PENSTOCK_TEST_QUICK PENSTOCK_TEST_LONG MAKEFLAGS MFLAGS \
	TESTS # set by the run that this test is part of

mkdir -p "$T/tree/scripts"
cp "$top_srcdir/scripts/check" "$T/tree/scripts/"
cat >"$T/tree/scripts/build" <<'SH'
#!/bin/sh
mkdir -p "$2/tests"
cd "$2"
echo 'S["HAVE_CMOCKA_TRUE"]=""' >config.status
cat >Makefile <<'MAKE'
list-tests:
	@printf '%s\n' tests/one tests/two
check-programs:
check:
	@echo "LONG=$$PENSTOCK_TEST_LONG QUICK=$$PENSTOCK_TEST_QUICK $(filter -j%,$(MAKEFLAGS))" >told
	@printf ':test-result: PASS\n:test-result: SKIP\n' >tests/one.trs
	@echo 'SKIP: tests/one 2 - b # SKIP why' >tests/one.log
	@echo 'PASS: tests/one 1 - a'; sleep $$SECONDS_BETWEEN
	@[ $$SECOND != ONCE ] || SECOND=$(if $(TESTS),PASS,FAIL); printf ":test-result: $$SECOND\n" >tests/two.trs; \
	echo "$$SECOND: tests/two 1 - c" | tee tests/two.log; \
	[ $$SECOND = PASS ] || { echo 'not ok 1 - c'; seq -f '# why %.0f' 99999; } >>tests/two.log; \
	test $$SECOND = PASS
MAKE
SH
chmod +x "$T/tree/scripts/build"

# checked SECOND OPTION...: runs scripts/check with SECOND as the second test's result; prints exit status and
# last line.
checked() {
	local second=$1 rc=0
	shift
	SECOND=$second SECONDS_BETWEEN=${SECONDS_BETWEEN-0} "$T/tree/scripts/check" --no-setup \
		--build-dir "$T/build" "$@" \
		>"$T/out" 2>&1 || rc=$?
	echo "$rc: $(tail -n 1 "$T/out")"
}

equal "passed and skipped results are counted" "0: 2 passed, 0 failed, 1 skipped" "$(checked PASS)"
check "the reason of a skipped result is printed" grep -q 'tests/one 2 - b # SKIP why' "$T/out"
equal "failures are counted" "1: 1 passed, 1 failed, 1 skipped" "$(checked FAIL)"
check "failures are listed by name" grep -q 'FAIL: tests/two 1 - c' "$T/out"
equal "a failed test runs again, alone" "0: 2 passed, 0 failed, 1 skipped" "$(checked ONCE)"
check "a test that passes when run alone is listed" grep -qx '  tests/two' "$T/out"
equal "with what failed at first, and why" "  tests/two|    not ok 1 - c|    # why 1|" \
	"$(grep -A2 -x '  tests/two' "$T/out" | tr '\n' '|')"
checked ONCE --tests tests/two >"$T/last"
check_not "--tests is passed on: a test that passes then is not run again" grep -q 'run again' "$T/out"
checked PASS -j 3 >"$T/last"
equal "by default LONG and QUICK are not set, and three tests run for each -j" \
	"LONG= QUICK= -j9" \
	"$(cat "$T/build/told")"
checked PASS --quick >"$T/last"
check "--quick is passed on" grep -q QUICK=1 "$T/build/told"
checked PASS --sanitizers=thread -j 3 >"$T/last"
check "with sanitizers one test runs for each -j" grep -q -- '-j3' "$T/build/told"
equal "--quick and --all exclude each other" "2: check: --quick and --all exclude each other (see --help)" \
	"$(checked PASS --quick --all)"
cat >"$T/tree/scripts/fuzz" <<'SH'
#!/bin/sh
echo "ok fuzz: x: 1 inputs"
SH
chmod +x "$T/tree/scripts/fuzz"
mkdir "$T/bin"
ln -s /bin/true "$T/bin/clang"
PATH=$T/bin:$PATH
equal "--all fuzzes, and counts the fuzz targets" "0: 3 passed, 0 failed, 1 skipped" "$(checked PASS --all)"
check "--all is passed on" grep -q LONG=1 "$T/build/told"

equal "in a pipe no progress is printed in the first half minute" "" \
	"$(grep 'test programs' "$T/out" || true)"
export SECOND=PASS SECONDS_BETWEEN=10
has_terminal || {
	skip "on a terminal a line shows the progress" "no pseudo-terminal can be opened (/dev/pts)"
	exit
}
"$python" -c 'import os, pty, sys
def read(fd):
    data = os.read(fd, 4096)
    with open(sys.argv[1], "ab") as f:
        f.write(data)
    return data
pty.spawn(sys.argv[2:], read)' "$T/terminal" "$T/tree/scripts/check" --no-setup --build-dir "$T/build" >"$T/out" || true
check "on a terminal a line shows the progress" \
	grep -qaE $'\r\e\\[K[0-9]+ of 2 test programs, [0-9]+ passed, ' "$T/terminal"
equal "the progress line is erased at the end" \
	$'\e[K' "$(tail -n 5 "$T/terminal" | grep -ao $'\e\\[K' | tail -n 1)"
