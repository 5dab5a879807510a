"""Configuration of the web site (Sphinx): README, docs/, the man pages and the reference of the Python package.

The sources are the files of the tree, as they are; man pages are converted by pandoc. scripts/html runs it.
"""
import glob
import os
import re
import subprocess

from docutils import nodes
from sphinx.parsers import RSTParser

project = "Penstock"
copyright = "the authors of Penstock"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
include_patterns = ["*.md", "docs/**", "man/*", "tests/README.md", "tests/bench/RESULTS.md"]
exclude_patterns = ["build*", "docs/site/conf.py", "man/Makemodule.am"]
# A man page of one line, such as that of a function which its family's page describes: it has no page here.
same_page = {}
for path in glob.glob("man/*.3", root_dir=os.path.join(os.path.dirname(__file__), "..", "..")):
    with open(os.path.join(os.path.dirname(__file__), "..", "..", path), encoding="utf-8") as page:
        if link := re.match(r"\.so man3/(.*)\.3", page.readline()):
            same_page[path[:-2]] = "man/" + link[1]
            exclude_patterns.append(path)
source_suffix = {".md": "markdown", ".1": "man", ".3": "man", ".5": "man"}
html_theme = "furo"
html_title = "Penstock"
html_show_copyright = html_show_sphinx = False
html_copy_source = False
highlight_language = "sh"
smartquotes = False  # options begin with two dashes
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
suppress_warnings = ["misc.highlighting_failure"]  # indented blocks are shell commands, or pictures in characters

# What a reader needs first stands first.
NAVIGATION = {
    "Start": ["docs/guides/quick-start", "docs/guides/choosing", "docs/guides/mount", "docs/guides/loader",
              "docs/python/tutorial", "docs/performance"],
    "Guides": ["docs/guides/*"],
    "Python": ["docs/python/*"],
    "Reference": ["man/penstock", "man/penstock-mount", "man/penstock-loader", "man/*",
                  "docs/site/python-reference", "docs/semantics", "docs/compatibility"],
    "Project": ["CHANGELOG", "SECURITY", "CONTRIBUTING", "RELEASING", "docs/*", "tests/README", "tests/bench/RESULTS"],
    "Design": ["docs/design/*"],
}


def navigation(app):
    """The contents, as toctrees: each document once."""
    documents, seen, text = sorted(app.env.found_docs), {"README"}, ""
    for caption, patterns in NAVIGATION.items():
        text += "\n```{toctree}\n:hidden:\n:maxdepth: 1\n:caption: %s\n\n" % caption
        for pattern in patterns:
            expression = re.compile(pattern.replace("*", "[^/]*") + "$")
            for name in documents:
                if expression.match(name) and name not in seen:
                    seen.add(name)
                    text += "/%s\n" % name
        text += "```\n"
    return text


def add_contents(app, name, source):
    if name == "README":
        source[0] += navigation(app)
    elif name == "docs/site/python-reference" and "no_python" in app.tags:
        source[0] = ":orphan:\n\n# Python reference\n\nThe package was not built with this site.\n"


def link_man_pages(app, doctree, name):
    """Turns names such as penstock-mount(1) into links, except in code and in links."""
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference, nodes.title)):
            continue
        parts, at = [], 0
        for m in re.finditer(r"\b([\w.-]+)\(([1-9])\)", text):
            to = same_page.get("man/" + m[1], "man/" + m[1])
            if to in app.env.found_docs and to != name:
                link = nodes.reference("", m[0], refuri=app.builder.get_relative_uri(name, to), internal=True)
                parts += [nodes.Text(text[at:m.start()]), link]
                at = m.end()
        if parts:
            text.parent.replace(text, parts + [nodes.Text(text[at:])])


def plain_docstring(app, what, name, thing, options, lines):
    """Docstrings are plain text. A paragraph with indented lines stays as it is, one of lines "option: ..." becomes a
    list, and the others are prose."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = []
    for paragraph in paragraphs:
        text = paragraph.split("\n")
        if any(line.startswith(" ") for line in text):
            lines += [".. code-block:: text", "", *("   " + line for line in text), ""]
            continue
        text = [re.sub(r"`(\w+)`|([*_|\\`])", lambda m: "``%s``" % m[1] if m[1] else "\\" + m[2], line) for line in text]
        if re.match(r"[\w\\]+: ", text[0]):
            text = [re.sub(r"^([\w\\]+): ", r"* **\1**: ", line) for line in text]
            text = [line if line.startswith("* ") else "  " + line for line in text]
        lines += [*text, ""]


class ManPage(RSTParser):
    """Reads a man page: pandoc converts it."""
    supported = ("man",)

    def parse(self, text, document):
        head = re.search(r"^\.TH +(\S+) +(\S+)", text, re.M)
        title = "%s(%s)" % (head[1].lower(), head[2])
        body = subprocess.run(["pandoc", "-f", "man", "-t", "rst", "--wrap=preserve", "--shift-heading-level-by=1"],
                              input=text, check=True, capture_output=True, text=True).stdout
        # What pandoc does not escape: bars within lines, and asterisks that begin no emphasis. Indented lines are code.
        markup = (r"``.+?``|\*\*(?:\\.|[^\\])+?\*\*|\*(?![\s,.;)*])(?:\\.|[^*\\])*?(?<!\s)\*|"
                  r"\\.|(?P<bare>[*|])")
        body = re.sub(r"(?m)^(?![\s|+]).+$", lambda line: re.sub(
            markup, lambda m: "\\" + m[0] if m["bare"] else m[0], line[0]), body)
        super().parse("\n".join(["#" * len(title), title, "#" * len(title), "", body]), document)


def setup(app):
    app.add_source_parser(ManPage)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("doctree-resolved", link_man_pages)
