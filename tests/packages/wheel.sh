#!/usr/bin/env bash
# tests/packages/wheel.sh DIR [PROGRAM]: installs the wheel in DIR into new venvs on this system, and uses it.
# If PROGRAM is a free-threaded Python, tests the wheel for it, too. Run it only in a disposable root:
# scripts/wheel --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/wheel
wheel=$(echo "$1"/penstock-*-abi3-*.whl)
free_python=${2-}
apt update
apt install python3-venv ca-certificates

cat >"$work/load.py" <<'PY'
"""load.py [MODULE...]: imports the modules in that order, and penstock last if it is not one of them."""
import glob, hashlib, importlib, io, sys, tarfile
for name in sys.argv[1:]:
    importlib.import_module(name)
import penstock
photos = sorted(glob.glob("/penstock/tests/data/photos/*.jpg"))
with tarfile.open("a.tar", "w") as tar:
    for i, photo in enumerate(photos):
        data = open(photo, "rb").read()
        for name, data in (("%03d.jpg" % i, data), ("%03d.cls" % i, b"%d" % i)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
fields = {"image": penstock.Image("jpg", size=224), "label": penstock.Int("cls")}
loader = penstock.Loader("a.tar", batch=8, seed=3, format="numpy", fields=fields, end="uneven")
print(hashlib.sha256(b"".join(batch["image"].tobytes() for batch in loader)).hexdigest(), len(photos))
PY
cd "$work"

check "no compiler is here" bash -c '! command -v cc'
python3 -m venv "$work/venv"
check "the wheel installs" "$work/venv/bin/pip" install -q "$wheel" numpy
check "python -m penstock succeeds" "$work/venv/bin/python" -m penstock
check "the package loads photographs" "$work/venv/bin/python" load.py
pixels=$(cat "$work/out")
check "all photographs are loaded" \
	grep -q " $(find /penstock/tests/data/photos -name '*.jpg' | wc -l)$" <<<"$pixels"
check "penstock-loader runs" "$work/venv/bin/penstock-loader" bench --epochs 1 a.tar
check "penstock-loader prints its version" "$work/venv/bin/penstock-loader" --version
cat >"$work/remote.py" <<'PY'
import penstock
try:
    penstock.Loader("https://127.0.0.1:9/a.tar")
except penstock.Error as e:
    assert "penstock" in str(e), e
    print(e)
else:
    raise SystemExit("no error")
PY
check "a URL without the mount's program is a clear error" "$work/venv/bin/python" remote.py
cat "$work/out"

same() { [[ $("$work/$1/bin/python" load.py "${@:2}") == "$pixels" ]]; }
if [[ $free_python ]]; then
	"$free_python" -m venv "$work/free"
	tag=$("$free_python" -c 'import sys; print("cp%d%d-cp%d%dt" % (2 * sys.version_info[:2]))')
	# --only-binary: the newest NumPy may have no wheel for this Python, and there is no compiler.
	check "the wheel for $tag installs" "$work/free/bin/pip" install -q --only-binary :all: \
		"$(echo "$1"/penstock-*-"$tag"-*.whl)" numpy
	check "the wheel for $tag loads the same pixels" same free
	check "the GIL stays off with $tag" "$work/free/bin/python" -W error -c \
		'import penstock, sys; assert not sys._is_gil_enabled()'
	check "penstock-loader of $tag runs" "$work/free/bin/penstock-loader" --version
fi

site=$(echo "$work"/venv/lib/python3*/site-packages)
exported() {
	"$work/venv/bin/python" -c "import ctypes, sys; getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])" \
		"$site"/penstock.libs/libpenstock-*.so* "$1"
}
check "libpenstock exports its own symbols" exported penstock_loader_open
hidden() { ! exported jpeg_CreateDecompress && ! compgen -G "$site/penstock.libs/libjpeg*"; }
check "libpenstock does not export libjpeg's symbols" hidden
missing=
for path in "$site"/penstock.libs/*.so*; do
	name=$(basename "$path")
	[[ $name != libpenstock-* ]] || continue
	stem=${name%%-????????.so*}
	notice=$(awk -v so="$stem.so" 'index($1, so) == 1 {print $2; exit}' "$site/penstock/licenses/INDEX")
	[[ $notice && -s $site/penstock/licenses/$notice ]] || missing+="$name "
done
check "each bundled library has its notice (missing: ${missing:-none})" test -z "$missing"
for notice in libjpeg-turbo penstock; do
	check "the notice of $notice is in the wheel" test -s "$site/penstock/licenses/$notice"
done

check "Pillow and OpenCV install" "$work/venv/bin/pip" install -q pillow opencv-python-headless
check "pixels are the same if penstock is imported before Pillow and OpenCV" same venv penstock PIL.Image cv2
check "pixels are the same if penstock is imported between Pillow and OpenCV" same venv PIL.Image penstock cv2
check "pixels are the same if penstock is imported between OpenCV and Pillow" same venv cv2 penstock PIL.Image
check "pixels are the same if penstock is imported after Pillow and OpenCV" same venv PIL.Image cv2 penstock
tutorial() {
	awk '/^```python/ {on = 1; next} /^```/ {if (on) exit} on' \
		/penstock/docs/python/tutorial.md >tutorial.py
	"$work/venv/bin/python" tutorial.py | grep -x '300 colours/train-000002.tar'
}
check "the tutorial's first block runs" tutorial
apt install python3-torch python3-torchvision
python3 -m venv --system-site-packages "$work/beside"
check "the wheel installs beside Debian's torch" "$work/beside/bin/pip" install -q "$wheel"
check "pixels are the same if penstock is imported after torch and torchvision" same beside torch torchvision
check "pixels are the same if penstock is imported before torch and torchvision" \
	same beside penstock torch torchvision
cd /
verdict
