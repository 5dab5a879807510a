#!/usr/bin/env bash
# scripts/compile-commands lists each C file of the product once, with make's command.
. "$(dirname "$0")/../lib.sh"
requires penstock loader

named() { "$python" -c 'import json, sys
for entry in json.load(open(sys.argv[1])): print(entry["file"])' "$1"; }

json=$top_builddir/compile_commands.json
[[ ! -e $json ]] || mv "$json" "$T/before"
check "compile-commands writes its file" "$top_srcdir/scripts/compile-commands" "$top_builddir"
mv "$json" "$T/now"
[[ ! -e $T/before ]] || mv "$T/before" "$json"

# All sources of the product; those of the Python package only if it is built.
unbuilt=(-path 'loader/examples/*')
[[ -e $top_builddir/loader/python/_penstock.la ]] || unbuilt+=(-o -path 'loader/python/*')
(cd "$top_srcdir" && find base cache fs loader -name '*.c' -not \( "${unbuilt[@]}" \)) | sort >"$T/sources"
named "$T/now" | sed "s|^$(cd "$top_srcdir" && pwd)/||" | sort >"$T/named"
check "there are files to look at" test "$(wc -l <"$T/sources")" -gt 100
equal "each file is named once" "$(cat "$T/sources")" "$(cat "$T/named")"

# One of the commands is run.
check "a command compiles its file" "$python" - "$T/now" "$T/size.o" <<'PY'
import json, subprocess, sys
entry = next(entry for entry in json.load(open(sys.argv[1])) if entry["file"].endswith("/base/size.c"))
words = entry["arguments"]
words[words.index("-o") + 1] = sys.argv[2]
for option in ("-MF", "-MT"):
    if option in words:
        words[words.index(option) + 1] = sys.argv[2] + ".d"
sys.exit(subprocess.run(words, cwd=entry["directory"]).returncode)
PY
