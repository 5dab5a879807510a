#!/usr/bin/python3
"""Counts words to be replaced, and lines of C and shell over 110 columns; tests/scripts/words.txt has the limits.

usage: word_counts.py                 prints each count above its limit; exits with 1 if there is one
       word_counts.py --lower         lowers the limits in the table to the present counts
       word_counts.py --show PATTERN  prints where a row of the table is found, as file:line: text
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "words.txt")
COLUMNS = 110
LONG = f"lines over {COLUMNS} columns"

# For each place: its folders and files, relative to the top folder, and the suffixes of files that are counted
# ("": files without a suffix).
PLACES = {
    "sources": (["base", "cache", "fs", "loader", "scripts"], (".c", ".h", ".cu", ".py", "")),
    "pages": (["man", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "RELEASING.md", "SECURITY.md", "HACKING.md",
               "tests/README.md"], (".1", ".3", ".5", ".md")),
    "tests": (["tests"], (".c", ".h", ".sh", ".py")),
}
LEFT_OUT = ("docs/glossary.md", "tests/fuzz/corpus/", "tests/data/", "tests/scripts/word_counts.py")


def files(place):
    roots, ends = PLACES[place]
    for root in roots:
        if os.path.isfile(root):
            yield root
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith((".", "__", "build")))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.splitext(name)[1] in ends and not path.startswith(LEFT_OUT):
                    yield path


def read(place):
    """[(path, text)] of each file"""
    texts = []
    for path in files(place):
        with open(path, "rb") as file:
            texts.append((path, file.read().decode("utf-8", "replace")))
    return texts


def rows():
    """(line of the table, [most in sources, pages, tests], pattern)"""
    with open(TABLE, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if line.strip() and not line.startswith("#"):
                fields = line.split(None, 3)
                yield number, fields[:3], fields[3].split("\t")[0].strip()


def hits(pattern, text, path=""):
    if pattern == LONG:  # counted in C and shell only
        return 0 if path.endswith((".py", ".pyi")) or text.startswith("#!/usr/bin/python3") else sum(len(line.expandtabs(8)) > COLUMNS for line in text.split("\n"))
    return len(re.findall(pattern, text, re.IGNORECASE))


def main(argv):
    os.chdir(os.path.join(HERE, "..", ".."))
    texts = {place: read(place) for place in PLACES}
    if len(argv) == 3 and argv[1] == "--show":
        for place in PLACES:
            for path, text in texts[place]:
                for number, line in enumerate(text.split("\n"), 1):
                    if hits(argv[2], line, path) and hits(argv[2], text, path):
                        print(f"{path}:{number}: {line.strip()}")
        return 0
    if argv[1:] not in ([], ["--lower"]):
        sys.exit(__doc__)
    above, now = 0, {}
    for number, most, pattern in rows():
        counts = []
        for place, limit in zip(PLACES, most):
            if limit == "-":
                counts.append(limit)
                continue
            count = sum(hits(pattern, text, path) for path, text in texts[place])
            counts.append(str(min(count, int(limit))))
            if count > int(limit):
                above += 1
                print(f"{place}: {count} x {pattern}, at most {limit}; tests/scripts/word_counts.py --show '{pattern}'")
        now[number] = counts
    if argv[1:]:
        with open(TABLE, encoding="utf-8") as file:
            table = file.readlines()
        for number, counts in now.items():
            table[number] = "{:>7} {:>7} {:>7}   ".format(*counts) + table[number].split(None, 3)[3]
        with open(TABLE, "w", encoding="utf-8") as file:
            file.writelines(table)
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
