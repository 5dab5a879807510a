#!/usr/bin/env bash
# Strict mypy and pyright with the package and a user's program: correct programs pass, errors are found.
. "$(dirname "$0")/../lib.sh"
long || skip_all "its packages take long to install: scripts/check --all runs it"
pip_python types mypy 'pyright[nodejs]' numpy typing_extensions
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1

mkdir "$T/types"
cp -r "$top_srcdir/loader/python/penstock" "$T/types/"
cd "$T/types"
cat >right.py <<'PY'
# pyright: strict
import penstock

fields = {"x": penstock.Image("jpg", 64, blur=0.5, blur_sigma=(0.1, 2))}
loader = penstock.Loader("a.tar", batch=4, fields=fields, format="torch", threads=3, end="drop_last",
                         memory_budget="512M", device=None)
for epoch in range(2):
    for batch in loader:
        print(batch["x"].shape, epoch)
loader.load_state_dict(loader.state_dict())
print(loader.peek(), loader.element_spec, loader.stats(), penstock.Budget("2G").used)
more = [penstock.Tokens("bin", 1024), penstock.Int(missing_value=7)]
with penstock.Loader(["a.tar"], fields=more, order=[1, 2, 3]) as other:
    print(len(other))
try:
    next(iter(loader))
except penstock.ShardReadError as e:
    print(e.errno, e.shard, e.key, e.offset)
PY
cat >wrong.py <<'PY'
import penstock

penstock.Loader("a.tar", thread=3)
penstock.Loader("a.tar", end="dorp_last")
penstock.Loader("a.tar", order="windows")
penstock.Image("jpg", blr=1)
penstock.Int("cls", max_bytes="a")
PY
wrong="3 4 5 6 7 "
check "mypy accepts a correct program" "$python" -m mypy --strict --follow-imports silent right.py
wrong_lines() { sed -nE 's/.*wrong.py:([0-9]+):.*error.*/\1/p' | sort -u | tr '\n' ' '; }
equal "mypy finds each wrong line" "$wrong" \
	"$("$python" -m mypy --strict --follow-imports silent wrong.py | wrong_lines)"
check "mypy accepts the package" "$python" -m mypy --strict --disable-error-code import-not-found \
	--disable-error-code import-untyped \
	--allow-subclassing-any -p penstock
check "pyright accepts a correct program" "$python" -m pyright right.py
equal "pyright finds each wrong line" "$wrong" "$("$python" -m pyright wrong.py | wrong_lines)"
