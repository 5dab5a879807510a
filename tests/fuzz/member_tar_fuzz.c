/* Any bytes as a shard whose members are shown: the tar reader and the tree end, and a table keeps its rules
 * (tests/cache/member_rows.h) after its rows were encoded and decoded. */
#include "mend_tar.h"
#include "tests/cache/member_rows.h"
#include "tests/loader/tar_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As ps_scan_shard() does it: up to the first damage. */
static int add_members(struct ps_member_tree *tree, const uint8_t *data, size_t size)
{
	struct tar_memory memory = {.p = data, .n = size};
	struct ps_tar *tar = ps_tar_new(&tar_memory_source, &memory, true);
	struct ps_tar_member m;
	int rc = tar ? 0 : -ENOMEM;

	while (rc == 0 && ps_tar_next(tar, &m, NULL) == 1 && m.size <= size && m.offset <= size - m.size)
		rc = ps_member_tree_add(tree, &m);
	ps_tar_free(tar);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	ps_autofree uint8_t *data = malloc(size + 1);
	struct ps_member_tree *tree = ps_member_tree_new();
	struct member_rows rows = {0};

	if (data && tree) {
		memcpy(data, input, size);
		checksums_mend(data, size);
		if (add_members(tree, data, size) == 0 && member_rows_make(tree, size, &rows) == 0)
			member_rows_check(&rows);
	}
	member_rows_free(&rows);
	ps_member_tree_free(tree);
	return 0;
}
