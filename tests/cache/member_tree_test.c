/* Trees of members: what of a tar is shown, in which order, and where links lead; as readers of the encoded
 * rows see it.
 *
 * A tar is written as words "KIND:NAME" or "KIND:NAME>LINK": F a file, D a folder, H a hard link, L a
 * symbolic link, S a sparse file, O a device, T a file whose name the tar reader has dropped. A tree is
 * written as its entries in the order of their ordinals: "d/" a folder, "f=2" a file with the bytes of
 * member 2 (from 0 on), "l->t" a link. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/size.h"
#include "tests/cache/member_rows.h"

struct built {
	struct ps_member_tree *tree;
	unsigned nmembers;
	int rc; /* the first error of an add */
	struct member_rows rows;
};

static void begin(struct built *b)
{
	*b = (struct built){.tree = ps_member_tree_new()};
	assert_non_null(b->tree);
}

/* Member k: a header block, and at most one block of data. */
static uint64_t offset_of(unsigned k)
{
	return PS_TAR_BLOCK * (2 * (uint64_t)k + 1);
}

static uint64_t size_of(unsigned k)
{
	return k % PS_TAR_BLOCK;
}

static void add_bytes(
        struct built *b, enum ps_tar_kind kind, const char *name, const char *link, bool name_too_long)
{
	const struct ps_tar_member m = {.name = name,
	        .name_len = strlen(name),
	        .kind = kind,
	        .name_too_long = name_too_long,
	        .link = link,
	        .link_len = strlen(link),
	        .mtime_s = 1000 + b->nmembers,
	        .size = ps_tar_is_data(kind) ? size_of(b->nmembers) : 0,
	        .offset = offset_of(b->nmembers),
	        .header_offset = offset_of(b->nmembers) - PS_TAR_BLOCK};

	b->nmembers++;
	if (b->rc == 0)
		b->rc = ps_member_tree_add(b->tree, &m);
}

static void add(struct built *b, enum ps_tar_kind kind, const char *name)
{
	add_bytes(b, kind, name, "", false);
}

static void add_link(struct built *b, enum ps_tar_kind kind, const char *name, const char *target)
{
	add_bytes(b, kind, name, target, false);
}

static void add_word(struct built *b, char kind, const char *name, const char *link)
{
	static const enum ps_tar_kind kinds[] = {['F'] = PS_TAR_FILE,
	        ['D'] = PS_TAR_FOLDER,
	        ['H'] = PS_TAR_HARDLINK,
	        ['L'] = PS_TAR_SYMLINK,
	        ['S'] = PS_TAR_SPARSE,
	        ['O'] = PS_TAR_OTHER,
	        ['T'] = PS_TAR_FILE};

	add_bytes(b, kinds[(unsigned char)kind], name, link, kind == 'T');
}

static void add_words(struct built *b, const char *words)
{
	char *copy = strdup(words), *rest = copy, *word;

	while ((word = strsep(&rest, " "))) {
		char *link = strchr(word, '>');

		if (link)
			*link++ = '\0';
		if (word[0])
			add_word(b, word[0], word + 2, link ? link : "");
	}
	free(copy);
}

/* Makes the rows of what was added, and checks the rules that hold for all tables. */
static void finish(struct built *b)
{
	assert_int_equal(b->rc, 0);
	assert_int_equal(member_rows_make(b->tree, offset_of(b->nmembers), &b->rows), 0);
	member_rows_check(&b->rows);
}

static void end(struct built *b)
{
	member_rows_free(&b->rows);
	ps_member_tree_free(b->tree);
}

static void add_path(const struct member_rows *r, uint32_t ordinal, struct ps_strbuf *out)
{
	uint32_t parent = member_at(r, ordinal)->parent;

	if (parent) {
		add_path(r, parent, out);
		ps_strbuf_addc(out, '/');
	}
	ps_strbuf_add(out, member_name(r, ordinal));
}

static void add_entry(const struct member_rows *r, uint32_t ordinal, struct ps_strbuf *out)
{
	const struct ps_member_entry *e = member_at(r, ordinal);

	add_path(r, ordinal, out);
	if (e->kind == PS_MEMBER_FOLDER) {
		ps_strbuf_addc(out, '/');
	} else if (e->kind == PS_MEMBER_LINK) {
		ps_strbuf_addf(out, "->%s", member_target(r, ordinal));
	} else {
		unsigned k = (unsigned)(e->offset / PS_TAR_BLOCK / 2);

		assert_int_equal(e->offset, offset_of(k));
		assert_int_equal(e->size, size_of(k));
		assert_int_equal(e->mtime_s, 1000 + k);
		ps_strbuf_addf(out, "=%u", k);
	}
}

static void shows(const struct built *b, const char *tree)
{
	ps_autostrbuf struct ps_strbuf out = {0};

	for (uint32_t i = 1; i < b->rows.t.n; i++) {
		if (i > 1)
			ps_strbuf_addc(&out, ' ');
		add_entry(&b->rows, i, &out);
	}
	assert_string_equal(ps_strbuf_peek(&out), tree);
}

struct row {
	const char *tar, *tree;
	unsigned nhidden;
	const char *hidden; /* why the first hidden member is hidden; NULL: none is */
};

static void agree(const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct built b;

		begin(&b);
		add_words(&b, rows[i].tar);
		finish(&b);
		shows(&b, rows[i].tree);
		assert_int_equal(b.rows.t.nhidden, rows[i].nhidden);
		assert_string_equal(b.rows.t.hidden, rows[i].hidden ? rows[i].hidden : "");
		end(&b);
	}
}

/* Names -------------------------------------------------------------------------------------------------- */

static void entries_are_in_the_order_of_the_bytes_of_their_names(void **state)
{
	static const struct row rows[] = {
	        {"", "", 0, NULL},
	        {"F:b F:a F:c", "a=1 b=0 c=2", 0, NULL},
	        {"F:a.b F:a F:a/ F:ab F:A F:\x7f F:\x80 F:\xff F:-",
	                "-=8 A=4 a=2 a.b=0 ab=3 \x7f=5 \x80=6 \xff=7", 1,
	                "a/: a later member has the same name"},
	        {"F:10 F:9 F:1", "1=2 10=0 9=1", 0, NULL},
	        {"F:z F:d/b F:d/a F:c/x", "c/ d/ z=0 c/x=3 d/a=2 d/b=1", 0, NULL},
	        {"F:b/y/k F:b/x F:a/z/k F:a/z/j", "a/ b/ a/z/ b/x=1 b/y/ a/z/j=3 a/z/k=2 b/y/k=0", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void folders_are_made_where_the_tar_has_none(void **state)
{
	static const struct row rows[] = {
	        {"F:a/b/c", "a/ a/b/ a/b/c=0", 0, NULL},
	        {"F:a/b/c D:a/b D:a/ D:a", "a/ a/b/ a/b/c=0", 0, NULL},
	        {"D:a/b D:c/", "a/ c/ a/b/", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void leading_slashes_and_dots_are_dropped(void **state)
{
	static const struct row rows[] = {
	        {"D:./ F:./a F:/b F:.//./c//./d F:///e/.", "a=1 b=2 c/ e=4 c/d=3", 0, NULL},
	        {"D:. D:/ D:/./ D:./. F:x", "x=4", 0, NULL},
	        {"F:a F:./a", "a=1", 1, "./a: a later member has the same name"},
	        {"F:... F:.a F:a. F:..a", "...=0 ..a=3 .a=1 a.=2", 0, NULL},
	        {"D:...", ".../", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void names_that_lead_up_or_nowhere_are_hidden(void **state)
{
	static const struct row rows[] = {
	        {"F:../a F:ok", "ok=1", 1, "../a: the name has a component \"..\""},
	        {"F:a/../b F:a/..", "", 2, "a/../b: the name has a component \"..\""},
	        {"D:..", "", 1, "..: the name has a component \"..\""},
	        {"D:./../", "", 1, "./../: the name has a component \"..\""},
	        {"F:", "", 1, ": the name is empty"},
	        {"F:. F:/ F:./", "", 3, ".: the name is empty"},
	        {"L:./>a H:/>a", "", 2, "./: the name is empty"},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void of_members_of_one_name_the_last_is_shown(void **state)
{
	static const struct row rows[] = {
	        {"F:a F:b F:a F:a", "a=3 b=1", 2, "a: a later member has the same name"},
	        {"F:a L:a>b F:b", "a->b b=2", 1, "a: a later member has the same name"},
	        {"L:a>b F:b F:a", "a=2 b=1", 1, "a: a later member has the same name"},
	        {"F:b F:a H:a>b", "a=0 b=0", 1, "a: a later member has the same name"},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void a_folder_hides_a_file_of_its_name(void **state)
{
	static const struct row rows[] = {
	        {"F:a D:a", "a/", 1, "a: a folder has the same name"},
	        {"D:a F:a", "a/", 1, "a: a folder has the same name"},
	        {"F:a F:a/b", "a/ a/b=1", 1, "a: a folder has the same name"},
	        {"F:a/b F:a", "a/ a/b=0", 1, "a: a folder has the same name"},
	        {"F:x/a F:x/a/b F:x/a", "x/ x/a/ x/a/b=1", 2, "a: a folder has the same name"},
	        {"D:d L:a>d F:a/x", "a/ d/ a/x=2", 1, "a: a folder has the same name"},
	        {"F:a/b L:a>a/b", "a/ a/b=0", 1, "a: a folder has the same name"},
	        {"F:a D:a F:a", "a/", 2, "a: a folder has the same name"},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void what_has_no_bytes_in_one_piece_is_hidden(void **state)
{
	static const struct row rows[] = {
	        {"S:a F:b", "b=1", 1, "a: a sparse file, whose bytes are not in one piece"},
	        {"O:dev/null F:b", "b=1", 1, "dev/null: a device or FIFO, or of an unknown kind"},
	        {"F:a S:a O:a", "a=0", 2, "a: a sparse file, whose bytes are not in one piece"},
	        {"S:a H:b>a", "", 2, "a: a sparse file, whose bytes are not in one piece"},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static char *repeated(const char *text, size_t times, const char *last)
{
	struct ps_strbuf b = {0};

	for (size_t i = 0; i < times; i++)
		ps_strbuf_add(&b, text);
	ps_strbuf_add(&b, last);
	return ps_strbuf_take(&b);
}

static void components_of_255_bytes_are_shown_and_longer_ones_hidden(void **state)
{
	ps_autofree char *fits = repeated("n", 255, ""), *longer = repeated("n", 256, "");
	ps_autofree char *in_it = repeated("n", 255, "/n/a"), *below = repeated("n", 256, "/a");
	struct built b;

	(void)state;
	begin(&b);
	add(&b, PS_TAR_FILE, in_it);
	add(&b, PS_TAR_FILE, longer);
	add(&b, PS_TAR_FILE, below);
	add(&b, PS_TAR_FOLDER, longer);
	finish(&b);
	assert_int_equal(b.rows.t.n, 4);
	assert_int_equal(b.rows.t.nhidden, 3);
	assert_int_equal(member_at(&b.rows, 1)->name_len, 255);
	assert_string_equal(member_name(&b.rows, 1), fits);
	assert_non_null(strstr(b.rows.t.hidden, "nnn...: a component of the name has more than 255 bytes"));
	assert_true(strlen(b.rows.t.hidden) < 300);
	end(&b);
}

static void paths_of_4095_bytes_are_shown_and_longer_ones_hidden(void **state)
{
	ps_autofree char *fits = repeated("d/", 2047, "f"), *longer = repeated("d/", 2047, "fg");
	ps_autofree char *folder = repeated("e/", 2048, "");
	struct built b;

	(void)state;
	begin(&b);
	add(&b, PS_TAR_FILE, fits);
	add(&b, PS_TAR_FILE, longer);
	add(&b, PS_TAR_FOLDER, folder);
	finish(&b);
	assert_int_equal(strlen(fits), 4095);
	assert_int_equal(b.rows.t.n, 1 + 2047 + 1);
	assert_int_equal(member_walk(&b.rows, 0, fits), b.rows.t.n - 1);
	assert_int_equal(b.rows.t.nhidden, 2);
	assert_non_null(strstr(b.rows.t.hidden, "...: the name is longer than a path may be"));
	end(&b);
}

/* Members of any kind are counted: also a folder, although its dropped name looks like that of the top
 * folder. */
static void names_that_the_reader_dropped_are_counted(void **state)
{
	static const enum ps_tar_kind kinds[] = {
	        PS_TAR_FILE, PS_TAR_FOLDER, PS_TAR_HARDLINK, PS_TAR_SYMLINK, PS_TAR_SPARSE, PS_TAR_OTHER};
	struct built b;

	(void)state;
	begin(&b);
	for (size_t i = 0; i < PS_ARRAY_LEN(kinds); i++)
		add_bytes(&b, kinds[i], "", "", true);
	finish(&b);
	assert_int_equal(b.rows.t.n, 1);
	assert_int_equal(b.rows.t.nhidden, PS_ARRAY_LEN(kinds));
	assert_string_equal(b.rows.t.hidden, ": the name is longer than a path may be");
	end(&b);
}

static void names_need_not_be_utf_8(void **state)
{
	static const struct row rows[] = {
	        {"F:\xff\xfe F:\xc3\xa4 F:\xc3 F:d\xe9/\x01",
	                "d\xe9/ \xc3=2 \xc3\xa4=1 \xff\xfe=0 d\xe9/\x01=3", 0, NULL},
	        {"F:\xff/../x", "", 1, "\xff/../x: the name has a component \"..\""},
	        {"F:\xff L:l>\xff", "l->\xff \xff=0", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

/* Links -------------------------------------------------------------------------------------------------- */

#define NO_TARGET "a hard link to a file that is not shown, or comes later"
#define LEADS_OUT "a link that leads out of the shard, or to nothing that is shown"

static void a_hard_link_has_the_bytes_that_its_target_had(void **state)
{
	static const struct row rows[] = {
	        {"F:a H:b>a", "a=0 b=0", 0, NULL},
	        {"F:d/a H:e/b>./d//a", "d/ e/ d/a=0 e/b=0", 0, NULL},
	        {"F:a H:b>/a", "a=0 b=0", 0, NULL},
	        {"F:a H:b>a H:c>b", "a=0 b=0 c=0", 0, NULL},
	        {"F:a H:b>a F:a", "a=2 b=0", 1, "a: a later member has the same name"},
	        {"F:a F:a H:b>a", "a=1 b=1", 1, "a: a later member has the same name"},
	        {"F:a H:b>a D:a", "a/ b=0", 1, "a: a folder has the same name"},
	        {"F:a H:b/a>a", "a=0 b/ b/a=0", 0, NULL},
	        {"F:a H:a/b>a", "a/ a/b=0", 1, "a: a folder has the same name"},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void a_hard_link_to_no_file_is_hidden(void **state)
{
	static const struct row rows[] = {
	        {"H:b>a", "", 1, "b: " NO_TARGET},
	        {"H:b>a F:a", "a=1", 1, "b: " NO_TARGET},
	        {"D:a H:b>a", "a/", 1, "b: " NO_TARGET},
	        {"F:a L:l>a H:b>l", "a=0 l->a", 1, "b: " NO_TARGET},
	        {"F:a H:b>a/x", "a=0", 1, "b: " NO_TARGET},
	        {"F:d/a H:b>d/../d/a H:c> H:d/c>/", "d/ d/a=0", 3, "b: " NO_TARGET},
	        {"F:d/a L:l>d H:b>l/a", "d/ l->d d/a=0", 1, "b: " NO_TARGET},
	        {"F:a H:../b>a", "a=0", 1, "../b: the name has a component \"..\""},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void a_symbolic_link_is_shown_if_it_ends_within_the_shard(void **state)
{
	static const struct row rows[] = {
	        {"F:a L:l>a", "a=0 l->a", 0, NULL},
	        {"L:l>a F:a", "a=1 l->a", 0, NULL},
	        {"F:d/a L:d/l>a L:d/m>./a L:n>d//a", "d/ n->d/a d/a=0 d/l->a d/m->a", 0, NULL},
	        {"F:d/a L:e/f/l>../../d/a L:e/m>../d", "d/ e/ d/a=0 e/f/ e/m->../d e/f/l->../../d/a", 0,
	                NULL},
	        {"F:d/a L:d/l>../d/a L:d/m>../d", "d/ d/a=0 d/l->a d/m->.", 0, NULL},
	        {"F:d/e/a L:d/e/l>../.. L:d/m>..", "d/ d/e/ d/m->.. d/e/a=0 d/e/l->../..", 0, NULL},
	        {"F:d/e/a L:d/e/l>../../d L:l>.", "d/ l->. d/e/ d/e/a=0 d/e/l->..", 0, NULL},
	        {"F:a L:l>m L:m>n L:n>a", "a=0 l->a m->a n->a", 0, NULL},
	        {"F:d/a L:l>d L:m>l/a L:n>l/../d/a", "d/ l->d m->d/a n->d/a d/a=0", 0, NULL},
	        {"F:d/a L:a/b>../d L:c>a/b/a", "a/ c->d/a d/ a/b->../d d/a=0", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

static void a_symbolic_link_that_leads_out_or_nowhere_is_hidden(void **state)
{
	static const struct row rows[] = {
	        {"F:a L:l>/a", "a=0", 1, "l: " LEADS_OUT},
	        {"F:a L:l>../a", "a=0", 1, "l: " LEADS_OUT},
	        {"F:a L:d/l>../../a L:d/m>../a", "a=0 d/ d/m->../a", 1, "l: " LEADS_OUT},
	        {"L:l>b L:m>l", "", 2, "l: " LEADS_OUT},
	        {"F:a L:l>a/b L:m>a/.. L:n>a/./a", "a=0", 3, "l: " LEADS_OUT},
	        {"L:l>l", "", 1, "l: " LEADS_OUT},
	        {"L:l>m L:m>l F:a", "a=2", 2, "l: " LEADS_OUT},
	        {"L:l>m/a L:m>. F:a L:n>n/..", "a=2 l->a m->.", 1, "n: " LEADS_OUT},
	        {"S:a L:l>a", "", 2, "a: a sparse file, whose bytes are not in one piece"},
	        {"F:a L:l>", "a=0", 1, "l: " LEADS_OUT},
	        {"F:a L:l>d L:d>e L:e>../x", "a=0", 3, "l: " LEADS_OUT},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

/* The link "a/b" leads to the folder "a", so "a/b/.." is the top folder and not "a". A path that is
 * shortened as a text would end elsewhere. */
static void dots_after_a_link_are_those_of_its_target(void **state)
{
	static const struct row rows[] = {
	        {"L:a/b>. F:x L:l>a/b/../x", "a/ l->x x=1 a/b->.", 0, NULL},
	        {"L:a/b>. F:a/x L:l>a/b/../x", "a/ a/b->. a/x=1", 1, "l: " LEADS_OUT},
	        {"L:a/b>. L:l>a/b/../../x F:x", "a/ x=2 a/b->.", 1, "l: " LEADS_OUT},
	        {"D:p/q L:s>p/q F:p/x F:x L:l>s/../x", "l->p/x p/ s->p/q x=3 p/q/ p/x=2", 0, NULL},
	};

	(void)state;
	agree(rows, PS_ARRAY_LEN(rows));
}

/* l00 -> l01 -> ... -> f, added from either end: the kernel sees the last target only. */
static void chains_of_links_may_be_of_any_length(void **state)
{
	enum { N = 20000 };

	(void)state;
	for (int up = 0; up < 2; up++) {
		struct built b;

		begin(&b);
		add(&b, PS_TAR_FILE, "f");
		for (int i = 0; i < N; i++) {
			char name[16], target[16] = "f";

			snprintf(name, sizeof(name), "l%05d", i);
			if (up ? i > 0 : i < N - 1)
				snprintf(target, sizeof(target), "l%05d", up ? i - 1 : i + 1);
			add_link(&b, PS_TAR_SYMLINK, name, target);
		}
		finish(&b);
		assert_int_equal(b.rows.t.n, 2 + N);
		assert_int_equal(b.rows.t.nhidden, 0);
		assert_string_equal(member_target(&b.rows, member_find(&b.rows, 0, "l00041", 6)), "f");
		assert_string_equal(member_target(&b.rows, member_find(&b.rows, 0, "l19000", 6)), "f");
		end(&b);
	}
}

/* Each link follows the one before it twice. */
static void links_that_double_at_each_step_end_soon(void **state)
{
	struct built b;

	(void)state;
	begin(&b);
	add(&b, PS_TAR_FOLDER, "d");
	add_link(&b, PS_TAR_SYMLINK, "l0", "d");
	for (int i = 1; i < 1000; i++) {
		char name[16], target[32];

		snprintf(name, sizeof(name), "l%d", i);
		snprintf(target, sizeof(target), "l%d/../l%d", i - 1, i - 1);
		add_link(&b, PS_TAR_SYMLINK, name, target);
	}
	finish(&b);
	assert_int_equal(b.rows.t.n, 2 + 1000);
	assert_string_equal(member_target(&b.rows, member_find(&b.rows, 0, "l999", 4)), "d");
	end(&b);
}

/* From the bottom of a deep folder to that of another one: 1,300 times "../", and as many folders down. */
static void a_link_whose_target_is_longer_than_a_path_is_hidden(void **state)
{
	ps_autofree char *from = repeated("a/", 1300, ""), *to = repeated("b/", 1300, "f");
	ps_autofree char *l = repeated("a/", 1300, "l"), *m = repeated("a/", 1300, "m");
	struct built b;

	(void)state;
	begin(&b);
	add(&b, PS_TAR_FOLDER, from);
	add(&b, PS_TAR_FILE, to);
	/* m leads to b/bottom, and b/bottom to the file: both targets are short enough for a path. The target
	 * with which m would be shown, from its folder to the file, is not. */
	add_link(&b, PS_TAR_SYMLINK, "b/bottom", to + 2);
	add_link(&b, PS_TAR_SYMLINK, l, from);
	ps_autofree char *up = repeated("../", 1300, "b/bottom");
	add_link(&b, PS_TAR_SYMLINK, m, up);
	finish(&b);
	assert_int_equal(b.rows.t.nhidden, 2);
	assert_int_equal(b.rows.t.n, 1 + 2 * 1300 + 2);
	assert_non_null(strstr(b.rows.t.hidden, LEADS_OUT));
	end(&b);
}

/* Many --------------------------------------------------------------------------------------------------- */

static void many_entries_are_found_over_the_borders_of_rows(void **state)
{
	enum { FOLDERS = 7, FILES = 3 * PS_MEMBER_ROW - 5 };
	struct built b;
	char name[32];

	(void)state;
	begin(&b);
	for (int i = FILES - 1; i >= 0; i--) {
		for (int d = 0; d < FOLDERS; d++) {
			snprintf(name, sizeof(name), "folder%d/%05d.jpg", d, i * 3);
			add(&b, PS_TAR_FILE, name);
		}
	}
	finish(&b);
	assert_int_equal(b.rows.t.n, 1 + FOLDERS + FOLDERS * FILES);
	assert_true(b.rows.n > 20);
	for (int d = 0; d < FOLDERS; d++) {
		snprintf(name, sizeof(name), "folder%d", d);
		uint32_t folder = member_find(&b.rows, 0, name, strlen(name));
		assert_int_equal(folder, 1 + d);
		for (int i = 0; i < FILES * 3; i++) {
			snprintf(name, sizeof(name), "%05d.jpg", i);
			uint32_t at = member_find(&b.rows, folder, name, strlen(name));
			assert_int_equal(
			        at, i % 3 ? MEMBER_NONE : 1 + FOLDERS + (unsigned)(d * FILES + i / 3));
			if (at != MEMBER_NONE)
				assert_int_equal(member_at(&b.rows, at)->offset,
				        offset_of((unsigned)((FILES - 1 - i / 3) * FOLDERS + d)));
		}
	}
	end(&b);
}

static void a_folder_may_have_200000_entries(void **state)
{
	struct built b;
	char name[32];

	(void)state;
	begin(&b);
	for (uint32_t i = 0; i < 200000; i++) {
		snprintf(name, sizeof(name), "d/%08x", i * 2654435761u);
		add(&b, PS_TAR_FILE, name);
	}
	finish(&b);
	assert_int_equal(b.rows.t.n, 200002);
	assert_int_equal(b.rows.t.nhidden, 0);
	assert_int_equal(member_at(&b.rows, 1)->nchildren, 200000);
	end(&b);
}

/* Runs only with PENSTOCK_TEST_LONG=1, because it takes half a gigabyte. */
static void more_entries_than_the_limit_are_refused(void **state)
{
	struct built b;
	char name[32];

	(void)state;
	if (!getenv("PENSTOCK_TEST_LONG"))
		return;
	begin(&b);
	for (uint32_t i = 0; b.rc == 0 && i < PS_MEMBERS_MAX - 1; i++) {
		snprintf(name, sizeof(name), "%x", i);
		add(&b, PS_TAR_FILE, name);
	}
	assert_int_equal(b.rc, 0);
	add(&b, PS_TAR_FILE, "0"); /* a name that exists takes no room */
	assert_int_equal(b.rc, 0);
	add(&b, PS_TAR_FILE, "one more");
	assert_int_equal(b.rc, -E2BIG);
	end(&b);
}

/* Against a model ---------------------------------------------------------------------------------------- */

#define MODEL_MAX 512
#define MODEL_PATH 512

/* The same rules, applied to texts alone: an entry is its whole path, and a link is followed as realpath()
 * does it. */
struct model {
	struct model_entry {
		char path[MODEL_PATH];
		enum ps_member_kind kind;
		unsigned member; /* whose bytes a file has */
		char link[MODEL_PATH];
		bool leads;             /* of a link: its target is shown */
		char shown[MODEL_PATH]; /* target of a link, as it is shown */
	} v[MODEL_MAX];
	unsigned n, nhidden;
};

static struct model_entry *model_find(struct model *m, const char *path)
{
	for (unsigned i = 0; i < m->n; i++)
		if (strcmp(m->v[i].path, path) == 0)
			return &m->v[i];
	return NULL;
}

/* "/./a//b" to "a/b". False: it is not shown. */
static bool model_path(const char *name, char ret[static MODEL_PATH])
{
	char copy[MODEL_PATH], *save, *part;

	strcpy(copy, name);
	ret[0] = '\0';
	for (part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		if (strcmp(part, ".") == 0)
			continue;
		if (strcmp(part, "..") == 0)
			return false;
		if (ret[0])
			strcat(ret, "/");
		strcat(ret, part);
	}
	return ret[0];
}

static struct model_entry *model_new(struct model *m, const char *path, enum ps_member_kind kind)
{
	assert_true(m->n < MODEL_MAX);
	struct model_entry *e = &m->v[m->n++];

	*e = (struct model_entry){.kind = kind};
	strcpy(e->path, path);
	return e;
}

static void model_folder(struct model *m, const char *path)
{
	struct model_entry *e = model_find(m, path);

	if (!e) {
		model_new(m, path, PS_MEMBER_FOLDER);
	} else if (e->kind != PS_MEMBER_FOLDER) {
		e->kind = PS_MEMBER_FOLDER;
		m->nhidden++;
	}
}

static void model_add(struct model *m, unsigned number, char kind, const char *name, const char *link)
{
	char path[MODEL_PATH], target[MODEL_PATH];
	const struct model_entry *of = NULL;

	if (kind == 'D' && strspn(name, "./") == strlen(name) && !strstr(name, ".."))
		return;
	if (kind == 'S' || kind == 'O' || !model_path(name, path)) {
		m->nhidden++;
		return;
	}
	if (kind == 'H') {
		of = model_path(link, target) ? model_find(m, target) : NULL;
		if (!of || of->kind != PS_MEMBER_FILE) {
			m->nhidden++;
			return;
		}
		number = of->member;
	}
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		model_folder(m, path);
		*slash = '/';
	}
	if (kind == 'D') {
		model_folder(m, path);
		return;
	}
	struct model_entry *e = model_find(m, path);
	m->nhidden += e != NULL;
	if (e && e->kind == PS_MEMBER_FOLDER)
		return;
	if (!e)
		e = model_new(m, path, PS_MEMBER_FILE);
	e->kind = kind == 'L' ? PS_MEMBER_LINK : PS_MEMBER_FILE;
	e->member = number;
	strcpy(e->link, link);
}

/* The path that a link ends at, "" for the top folder; false: it leads nowhere. The rest of the walk is one
 * text; the target of a link is put in front of it. */
static bool model_follow(struct model *m, const struct model_entry *link, char ret[static MODEL_PATH])
{
	char left[64 * MODEL_PATH], put[sizeof(left) + MODEL_PATH];
	unsigned nlinks = 0;

	if (link->link[0] == '\0')
		return false;
	strcpy(ret, link->path);
	strcpy(left, link->link);
	char *last = strrchr(ret, '/');
	*(last ? last : ret) = '\0';
	for (;;) {
		if (left[0] == '/' && nlinks == 0 && strcmp(left, link->link) == 0)
			return false;
		size_t skip = strspn(left, "/"), n = strcspn(left + skip, "/");
		if (n == 0)
			return true;
		char part[MODEL_PATH];
		snprintf(part, sizeof(part), "%.*s", (int)n, left + skip);
		memmove(left, left + skip + n, strlen(left + skip + n) + 1);
		if (strcmp(part, ".") == 0)
			continue;
		const struct model_entry *folder = ret[0] ? model_find(m, ret) : NULL;
		if (ret[0] && folder->kind != PS_MEMBER_FOLDER)
			return false;
		if (strcmp(part, "..") == 0) {
			if (!ret[0])
				return false;
			last = strrchr(ret, '/');
			*(last ? last : ret) = '\0';
			continue;
		}
		size_t at = strlen(ret);
		snprintf(ret + at, MODEL_PATH - at, "%s%s", at ? "/" : "", part);
		const struct model_entry *e = model_find(m, ret);
		if (!e)
			return false;
		if (e->kind != PS_MEMBER_LINK)
			continue;
		if (++nlinks > 40 || e->link[0] == '/' || !e->link[0])
			return false;
		ret[at] = '\0';
		snprintf(put, sizeof(put), "%s/%s", e->link, left);
		assert_true(strlen(put) < sizeof(left));
		strcpy(left, put);
	}
}

/* From the folder of a link to a path. */
static void model_relative(const char *link, const char *to, char ret[static MODEL_PATH])
{
	size_t same = 0; /* bytes of the folders that both are in, each with its slash */
	char end[MODEL_PATH];

	snprintf(end, sizeof(end), "%s%s", to, to[0] ? "/" : "");
	for (size_t i = 0; link[i] && link[i] == end[i]; i++)
		if (link[i] == '/')
			same = i + 1;
	ret[0] = '\0';
	for (const char *p = strchr(link + same, '/'); p; p = strchr(p + 1, '/'))
		strcat(ret, "../");
	strcat(ret, end + same);
	if (ret[0])
		ret[strlen(ret) - 1] = '\0';
	else
		strcpy(ret, ".");
}

static void model_finish(struct model *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		char to[MODEL_PATH];

		if (m->v[i].kind != PS_MEMBER_LINK)
			continue;
		m->v[i].leads = model_follow(m, &m->v[i], to);
		if (m->v[i].leads)
			model_relative(m->v[i].path, to, m->v[i].shown);
		m->nhidden += !m->v[i].leads;
	}
}

static void must_agree(const struct model *m, const struct built *b)
{
	uint32_t nshown = 1;

	assert_int_equal(b->rows.t.nhidden, m->nhidden);
	for (unsigned i = 0; i < m->n; i++) {
		const struct model_entry *want = &m->v[i];
		uint32_t at = member_walk(&b->rows, 0, want->path);

		if (want->kind == PS_MEMBER_LINK && !want->leads) {
			assert_int_equal(at, MEMBER_NONE);
			continue;
		}
		nshown++;
		assert_int_not_equal(at, MEMBER_NONE);
		const struct ps_member_entry *e = member_at(&b->rows, at);
		assert_int_equal(e->kind, want->kind);
		if (want->kind == PS_MEMBER_FILE) {
			assert_int_equal(e->offset, offset_of(want->member));
			assert_int_equal(e->size, size_of(want->member));
			assert_int_equal(e->mtime_s, 1000 + want->member);
		} else if (want->kind == PS_MEMBER_LINK) {
			assert_string_equal(member_target(&b->rows, at), want->shown);
		}
	}
	assert_int_equal(b->rows.t.n, nshown);
}

static uint32_t chance; /* state of a random generator */

static uint32_t random_below(uint32_t n)
{
	chance ^= chance << 13;
	chance ^= chance >> 17;
	chance ^= chance << 5;
	return chance % n;
}

static void random_path(char ret[static MODEL_PATH], bool of_link)
{
	static const char *const parts[] = {"a", "b", "a", "b", "c", "ab", "a.b", "\xff", "."};
	unsigned n = 1 + random_below(of_link ? 5 : 3);

	ret[0] = '\0';
	if (random_below(of_link ? 30 : 10) == 0)
		strcat(ret, "/");
	for (unsigned i = 0; i < n; i++) {
		bool up = random_below(of_link ? 3 : 60) == 0;

		strcat(ret, up ? ".." : parts[random_below(PS_ARRAY_LEN(parts))]);
		if (i + 1 < n)
			strcat(ret, random_below(20) ? "/" : "//");
	}
	if (!of_link && random_below(10) == 0)
		strcat(ret, "/");
}

static void random_lists_of_members_give_what_a_model_gives(void **state)
{
	static struct model m;

	(void)state;
	for (uint32_t seed = 1; seed <= 8000; seed++) {
		struct built b;
		unsigned n = 1 + seed % 40;

		chance = seed * 2654435761u;
		m.n = m.nhidden = 0;
		begin(&b);
		for (unsigned i = 0; i < n; i++) {
			char name[MODEL_PATH], link[MODEL_PATH] = "";
			char kind = "FFFFFDDHHLLLLLLSO"[random_below(seed % 2 ? 17 : 15)];

			random_path(name, false);
			if (kind == 'H' || kind == 'L')
				random_path(link, kind == 'L');
			add_word(&b, kind, name, link);
			model_add(&m, i, kind, name, link);
		}
		finish(&b);
		model_finish(&m);
		must_agree(&m, &b);
		end(&b);
	}
}

/* Rows and heads ----------------------------------------------------------------------------------------- */

/* Decodes a row from a copy whose memory ends with the row: a sanitizer sees a read past the end. */
static int decode_row(const struct ps_strbuf *b, size_t n, const struct ps_member_table *t, uint32_t first)
{
	struct ps_member_row *row = NULL;
	char *copy = malloc(n + 1);

	memcpy(copy + 1, b->s, n);
	int rc = ps_member_row_decode(copy + 1, n, t, first, &row);
	free(copy);
	if (rc < 0)
		return rc;
	assert_int_equal(row->n, PS_MIN(t->n - first, (uint32_t)PS_MEMBER_ROW));
	for (unsigned i = 0; i < row->n; i++) {
		const struct ps_member_entry *e = &row->v[i];

		assert_true(e->kind >= PS_MEMBER_FILE && e->kind <= PS_MEMBER_LINK);
		assert_int_equal(strlen(row->text + e->name), e->name_len);
		if (first + i > 0)
			member_check_name(row->text + e->name, e->name_len);
		assert_true(e->kind != PS_MEMBER_FILE ||
		            (e->offset <= t->size && e->size <= t->size - e->offset));
		assert_true(e->kind != PS_MEMBER_LINK || strlen(row->text + e->link) == e->link_len);
		assert_true(e->child <= t->n && e->nchildren <= t->n - e->child);
	}
	free(row);
	return 0;
}

/* Two rows with everything that a row can hold. */
static void sample(struct built *b)
{
	char name[32];

	begin(b);
	add_words(b, "F:a D:d/e L:l>d/e F:\xff L:d/e/up>../../a");
	for (int i = 0; i < 140; i++) {
		snprintf(name, sizeof(name), "f%d/%d", i % 3, i * i);
		add(b, PS_TAR_FILE, name);
	}
	finish(b);
	assert_int_equal(b->rows.n, 2);
}

static void damaged_rows_are_refused_or_keep_within_bounds(void **state)
{
	struct ps_member_row_writer w = {0};
	struct built b;

	(void)state;
	sample(&b);
	for (uint32_t first = 0; first < b.rows.t.n; first += PS_MEMBER_ROW) {
		struct ps_member_table t = b.rows.t;

		ps_member_tree_row(b.tree, first, &w);
		assert_int_equal(decode_row(&w.b, w.b.len, &t, first), 0);
		for (size_t n = 0; n < w.b.len; n++)
			assert_int_equal(decode_row(&w.b, n, &t, first), -EBADMSG);
		for (size_t bit = 0; bit < w.b.len * 8; bit++) {
			w.b.s[bit / 8] ^= (char)(1 << bit % 8);
			int rc = decode_row(&w.b, w.b.len, &t, first);
			assert_true(rc == 0 || rc == -EBADMSG);
			w.b.s[bit / 8] ^= (char)(1 << bit % 8);
		}
		for (size_t i = 0; i < w.b.len; i++) {
			char c = w.b.s[i];

			w.b.s[i] = (char)0xff;
			int rc = decode_row(&w.b, w.b.len, &t, first);
			assert_true(rc == 0 || rc == -EBADMSG);
			w.b.s[i] = c;
		}
		ps_strbuf_addc(&w.b, 0);
		assert_int_equal(decode_row(&w.b, w.b.len, &t, first), -EBADMSG);
	}
	ps_strbuf_fini(&w.b);
	end(&b);
}

static void a_row_of_another_table_is_refused(void **state)
{
	struct ps_member_row_writer w = {0};
	struct ps_member_table t;
	struct built b;

	(void)state;
	sample(&b);
	t = b.rows.t;
	ps_member_tree_row(b.tree, 0, &w);
	assert_int_equal(decode_row(&w.b, w.b.len, &t, PS_MEMBER_ROW), -EBADMSG);
	assert_int_equal(decode_row(&w.b, w.b.len, &t, t.n), -EBADMSG);
	assert_int_equal(decode_row(&w.b, w.b.len, &t, UINT32_MAX), -EBADMSG);
	t.n = 100; /* fewer entries than the row has */
	assert_int_equal(decode_row(&w.b, w.b.len, &t, 0), -EBADMSG);
	t = b.rows.t;
	t.size = 1000; /* a shorter shard */
	assert_int_equal(decode_row(&w.b, w.b.len, &t, 0), -EBADMSG);
	t = b.rows.t;
	ps_member_tree_row(b.tree, PS_MEMBER_ROW, &w);
	t.n--;
	assert_int_equal(decode_row(&w.b, w.b.len, &t, PS_MEMBER_ROW), -EBADMSG);
	t.n += 2;
	assert_int_equal(decode_row(&w.b, w.b.len, &t, PS_MEMBER_ROW), -EBADMSG);
	ps_strbuf_fini(&w.b);
	end(&b);
}

static int decode_head(const struct ps_strbuf *b, size_t n, struct ps_member_table *ret)
{
	char *copy = malloc(n + 1);

	memcpy(copy + 1, b->s, n);
	int rc = ps_member_head_decode(copy + 1, n, ret);
	free(copy);
	return rc;
}

static void forget_texts(struct ps_member_table *t)
{
	free(t->hidden);
	free(t->damage);
}

static void heads_come_back_as_they_were(void **state)
{
	static char none[] = "", reason[] = "a\xff: hidden", damage[] = "truncated";
	static const struct ps_member_table heads[] = {
	        {.first = 1024, .n = 1, .size = 1024, .hidden = none, .damage = none},
	        {.first = PS_MERGED_FOLDER - 1,
	                .n = PS_MEMBERS_MAX,
	                .nfiles = PS_MEMBERS_MAX - 1,
	                .nbytes = UINT64_MAX,
	                .nhidden = UINT32_MAX,
	                .size = UINT64_MAX,
	                .mtime_s = INT64_MAX,
	                .hidden = reason,
	                .damage = damage},
	        {.first = 5, .n = 2, .mtime_s = INT64_MIN, .hidden = none, .damage = damage},
	        {.first = 5, .n = 2, .mtime_s = -1, .hidden = reason, .damage = none},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(heads); i++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		struct ps_member_table t = {.shard = 77};

		ps_member_head_encode(&heads[i], &b);
		assert_false(b.failed);
		assert_int_equal(decode_head(&b, b.len, &t), 0);
		assert_int_equal(t.shard, 77);
		assert_int_equal(t.first, heads[i].first);
		assert_int_equal(t.n, heads[i].n);
		assert_int_equal(t.nfiles, heads[i].nfiles);
		assert_int_equal(t.nbytes, heads[i].nbytes);
		assert_int_equal(t.nhidden, heads[i].nhidden);
		assert_int_equal(t.size, heads[i].size);
		assert_int_equal(t.mtime_s, heads[i].mtime_s);
		assert_string_equal(t.hidden, heads[i].hidden);
		assert_string_equal(t.damage, heads[i].damage);
		forget_texts(&t);
	}
}

static void damaged_heads_are_refused_or_keep_within_bounds(void **state)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	char reason[] = "a: hidden", damage[] = "damaged";
	struct ps_member_table t = {.first = 5000,
	        .n = 300,
	        .nfiles = 290,
	        .nbytes = 123456,
	        .nhidden = 2,
	        .size = 1000000,
	        .mtime_s = 1700000000,
	        .hidden = reason,
	        .damage = damage};

	(void)state;
	ps_member_head_encode(&t, &b);
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(decode_head(&b, n, &t), -EBADMSG);
	for (size_t bit = 0; bit < b.len * 8; bit++) {
		struct ps_member_table ret = {0};

		b.s[bit / 8] ^= (char)(1 << bit % 8);
		int rc = decode_head(&b, b.len, &ret);
		assert_true(rc == -EBADMSG || (rc == 0 && ret.n > 0 && ret.n <= PS_MEMBERS_MAX &&
		                                      ret.nfiles <= ret.n && ret.first < PS_MERGED_FOLDER));
		forget_texts(&ret);
		b.s[bit / 8] ^= (char)(1 << bit % 8);
	}
	ps_strbuf_addc(&b, 0);
	assert_int_equal(decode_head(&b, b.len, &t), -EBADMSG);
	ps_strbuf_reset(&b);
	t.n = t.nfiles = 0; /* each table has its top folder at least */
	ps_member_head_encode(&t, &b);
	assert_int_equal(decode_head(&b, b.len, &t), -EBADMSG);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(entries_are_in_the_order_of_the_bytes_of_their_names),
	        TEST(folders_are_made_where_the_tar_has_none),
	        TEST(leading_slashes_and_dots_are_dropped),
	        TEST(names_that_lead_up_or_nowhere_are_hidden),
	        TEST(of_members_of_one_name_the_last_is_shown),
	        TEST(a_folder_hides_a_file_of_its_name),
	        TEST(what_has_no_bytes_in_one_piece_is_hidden),
	        TEST(components_of_255_bytes_are_shown_and_longer_ones_hidden),
	        TEST(paths_of_4095_bytes_are_shown_and_longer_ones_hidden),
	        TEST(names_that_the_reader_dropped_are_counted),
	        TEST(names_need_not_be_utf_8),
	        TEST(a_hard_link_has_the_bytes_that_its_target_had),
	        TEST(a_hard_link_to_no_file_is_hidden),
	        TEST(a_symbolic_link_is_shown_if_it_ends_within_the_shard),
	        TEST(a_symbolic_link_that_leads_out_or_nowhere_is_hidden),
	        TEST(dots_after_a_link_are_those_of_its_target),
	        TEST(chains_of_links_may_be_of_any_length),
	        TEST(links_that_double_at_each_step_end_soon),
	        TEST(a_link_whose_target_is_longer_than_a_path_is_hidden),
	        TEST(many_entries_are_found_over_the_borders_of_rows),
	        TEST(a_folder_may_have_200000_entries),
	        TEST(more_entries_than_the_limit_are_refused),
	        TEST(random_lists_of_members_give_what_a_model_gives),
	        TEST(damaged_rows_are_refused_or_keep_within_bounds),
	        TEST(a_row_of_another_table_is_refused),
	        TEST(heads_come_back_as_they_were),
	        TEST(damaged_heads_are_refused_or_keep_within_bounds),
	};

	return cmocka_run_group_tests_name("member_tree", tests, NULL, NULL);
}
