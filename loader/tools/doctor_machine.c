#include "config.h"

#include "tools/doctor_find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "tools/tools.h"

#define NOFILE_MIN 4096U         /* 64 lanes, workers, sockets */
#define SHM_MIN (1ULL << 30)     /* containers have 64 MiB, which holds a batch or two of a DataLoader */
#define MEMLOCK_MIN (8ULL << 20) /* the default of kernels since 5.16 */
#define READ_AHEAD_MIN_KIB 128U
#define DISK_MIN 500e6 /* bytes a second: 4,000 photographs of 110 kB */
#define DISK_NBYTES (256UL << 20)
#define DISK_BUF (4UL << 20)
#define DISK_NS UINT64_C(1000000000) /* the longest time for writing, and for reading */

enum state { OK, HINDERS, UNKNOWN };

struct machine {
	bool json;
	unsigned n, hinders;
};

static void json_member(const char *name, const char *text)
{
	printf(", \"%s\": ", name);
	if (text[0])
		ps_json_print(stdout, text);
	else
		printf("null");
}

/* Reports one check. `remedy`: a command; "": none exists, or none is needed. */
static void PS_PRINTF(5, 6) found(
        struct machine *m, const char *check, enum state state, const char *remedy, const char *format, ...)
{
	static const char *const words[] = {"ok", "hinders", "unknown"}, *const marks[] = {"ok", "!!", "??"};
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	m->hinders += state == HINDERS;
	if (m->json) {
		printf("%s{\"check\": \"%s\", \"state\": \"%s\"",
		        m->n++ > 0 ? ",\n  " : "{\"machine\": [\n  ", check, words[state]);
		json_member("found", text);
		json_member("mend", state == HINDERS ? remedy : "");
		putchar('}');
		return;
	}
	printf("%s  %-12s %s\n", marks[state], check, text);
	if (state == HINDERS && remedy[0])
		printf("%18s%s\n", "", remedy);
}

/* Reads the first line of a file of /proc or /sys. */
static bool line_read(const char *path, char *line, int size)
{
	FILE *in = fopen(path, "re");
	bool ok = in && fgets(line, size, in);

	if (in)
		fclose(in);
	if (ok)
		line[strcspn(line, "\n")] = 0;
	return ok;
}

/* Limits ------------------------------------------------------------------------------------------------- */

static void open_files(struct machine *m)
{
	struct rlimit r;
	char remedy[128];

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	snprintf(remedy, sizeof(remedy),
	        r.rlim_max >= NOFILE_MIN ? "ulimit -n %ju"
	                                 : "ulimit -n 65536    (as root; lasting: LimitNOFILE= of the unit, "
	                                   "/etc/security/limits.conf)",
	        (uintmax_t)PS_MIN(r.rlim_max, (rlim_t)65536));
	found(m, "open-files", r.rlim_cur >= NOFILE_MIN ? OK : HINDERS, remedy,
	        "%ju files may be open, and the limit may be raised to %ju; %u are enough for many lanes and "
	        "workers",
	        (uintmax_t)r.rlim_cur, (uintmax_t)r.rlim_max, NOFILE_MIN);
}

static void locked_memory(struct machine *m)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) < 0)
		return;
	if (r.rlim_cur == RLIM_INFINITY)
		found(m, "memlock", OK, "", "unlimited");
	else
		found(m, "memlock", r.rlim_cur >= MEMLOCK_MIN ? OK : HINDERS,
		        "ulimit -l unlimited    (as root; lasting: LimitMEMLOCK=infinity of the unit; docker "
		        "run --ulimit "
		        "memlock=-1)",
		        "%.2f MiB may be locked; what CUDA locks is not counted, RDMA wants unlimited",
		        (double)r.rlim_cur / (1 << 20));
}

static void shared_memory(struct machine *m)
{
	struct statvfs fs;
	double nbytes;

	if (statvfs("/dev/shm", &fs) < 0) {
		found(m, "shm", UNKNOWN, "", "/dev/shm: %s", strerror(errno));
		return;
	}
	nbytes = (double)fs.f_blocks * (double)fs.f_frsize;
	found(m, "shm", nbytes >= (double)SHM_MIN ? OK : HINDERS,
	        "mount -o remount,size=16G /dev/shm    (as root; docker run --shm-size=16g; Kubernetes: an "
	        "emptyDir of "
	        "medium Memory)",
	        "/dev/shm has %.2f GiB; workers of a torch DataLoader hand batches over there",
	        nbytes / (1 << 30));
}

/* Kernel ------------------------------------------------------------------------------------------------- */

static void passthrough(struct machine *m)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2) {
		found(m, "passthrough", UNKNOWN, "", "the kernel's version is not known");
		return;
	}
	if (access("/dev/fuse", F_OK) < 0)
		found(m, "passthrough", HINDERS, "modprobe fuse    (as root; docker run --device /dev/fuse)",
		        "there is no /dev/fuse, so nothing can be mounted");
	else if (major < 6 || (major == 6 && minor < 9))
		found(m, "passthrough", HINDERS,
		        "install a kernel of 6.9 or later (Debian 12: linux-image-amd64 of "
		        "bookworm-backports)",
		        "kernel %s reads cached files through the daemon; kernels from 6.9 on read them "
		        "directly",
		        u.release);
	else if (geteuid() != 0)
		found(m, "passthrough", OK, "",
		        "kernel %s has it, for mounts that root makes (-o allow_other); penstock status says "
		        "if one uses it",
		        u.release);
	else
		found(m, "passthrough", OK, "", "kernel %s has it; penstock status says if a mount uses it",
		        u.release);
}

static void huge_pages(struct machine *m)
{
	char line[128];

	if (!line_read("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		found(m, "huge-pages", UNKNOWN, "", "this kernel reports nothing of transparent huge pages");
	else
		found(m, "huge-pages", strstr(line, "[never]") ? HINDERS : OK,
		        "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled    (as root)", "%s", line);
}

static void numa(struct machine *m)
{
	DIR *d = opendir("/sys/devices/system/node");
	struct dirent *entry;
	unsigned nodes = 0, ours = 0;
	cpu_set_t mine;
	bool known = sched_getaffinity(0, sizeof(mine), &mine) == 0;

	while (d && (entry = readdir(d))) {
		char path[64], line[1024];
		unsigned node;
		bool has = false;

		if (sscanf(entry->d_name, "node%u", &node) != 1)
			continue;
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", node);
		if (!line_read(path, line, sizeof(line)) || !line[0])
			continue; /* a node of memory without CPUs */
		nodes++;
		for (char *p = line, *end; *p; p = *end == ',' ? end + 1 : end) {
			unsigned long first = strtoul(p, &end, 10), last = first;

			if (end == p)
				break;
			if (*end == '-')
				last = strtoul(end + 1, &end, 10);
			for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
				has = has || CPU_ISSET(cpu, &mine);
		}
		ours += has;
	}
	if (d)
		closedir(d);
	if (nodes == 0 || !known)
		found(m, "numa", UNKNOWN, "", "this kernel reports nothing of NUMA nodes");
	else
		found(m, "numa", nodes > 1 && ours > 1 ? HINDERS : OK,
		        "numactl --cpunodebind=0 --membind=0 COMMAND    (the node of the rank's GPU: "
		        "nvidia-smi topo -m)",
		        "%u node%s with processors, this process runs on %u", nodes, ps_plural(nodes), ours);
}

static void governor(struct machine *m)
{
	char line[64];

	if (line_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", line, sizeof(line)))
		found(m, "governor", strcmp(line, "powersave") == 0 ? HINDERS : OK,
		        "cpupower frequency-set -g performance    (as root)", "%s", line);
}

/* Disk of the folder ------------------------------------------------------------------------------------ */

static void read_ahead(struct machine *m, const char *folder)
{
	char path[64], remedy[128], line[32];
	struct stat st;
	unsigned long kib;

	if (stat(folder, &st) < 0)
		return;
	snprintf(
	        path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev), minor(st.st_dev));
	if (!line_read(path, line, sizeof(line))) {
		found(m, "read-ahead", UNKNOWN, "", "the file system of %s reports none", folder);
		return;
	}
	kib = strtoul(line, NULL, 10);
	snprintf(remedy, sizeof(remedy), "echo 1024 >%s    (as root)", path);
	found(m, "read-ahead", kib >= READ_AHEAD_MIN_KIB ? OK : HINDERS, remedy, "%lu KiB for %s", kib,
	        folder);
}

/* Writes and then reads a temporary file, without the page cache if that is possible, and returns the bytes a
 * second of both. False: failed, with errno set. */
static bool disk_try(const char *folder, double *ret_write, double *ret_read)
{
	ps_autofree char *path = ps_text("%s/.penstock-doctor.XXXXXX", folder);
	ps_autofree uint8_t *buf = ps_need(aligned_alloc(4096, DISK_BUF));
	ps_autofd int fd = -1;
	uint64_t begin, ns, n = 0;

	for (size_t i = 0; i < DISK_BUF; i++)
		buf[i] = (uint8_t)(i * UINT64_C(0x9e3779b97f4a7c15) >>
		                   32); /* not zeros: a disk may compress them */
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return false;
	(void)unlink(path);
	(void)fcntl(fd, F_SETFL, O_DIRECT);
	for (begin = ps_clock_mono_ns(); n < DISK_NBYTES && ps_clock_mono_ns() - begin < DISK_NS;
	        n += DISK_BUF)
		if (pwrite(fd, buf, DISK_BUF, (off_t)n) != (ssize_t)DISK_BUF)
			return false;
	if (fdatasync(fd) < 0)
		return false;
	ns = ps_clock_mono_ns() - begin;
	*ret_write = (double)n / ((double)ns / 1e9);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	begin = ps_clock_mono_ns();
	ns = 1;
	for (uint64_t at = 0; at < n && ns < DISK_NS; at += DISK_BUF) {
		if (pread(fd, buf, DISK_BUF, (off_t)at) != (ssize_t)DISK_BUF)
			return false;
		ns = ps_clock_mono_ns() - begin;
		*ret_read = (double)(at + DISK_BUF) / ((double)ns / 1e9);
	}
	return true;
}

static void disk(struct machine *m, const char *folder)
{
	double wrote = 0, read = 0;

	errno = 0;
	if (!disk_try(folder, &wrote, &read))
		found(m, "disk", UNKNOWN, "",
		        "%s cannot be measured: %s; name a folder that you may write to", folder,
		        strerror(errno ? errno : EIO));
	else
		found(m, "disk", read >= DISK_MIN ? OK : HINDERS,
		        "penstock mount ... --cache-dir FOLDER    (one on an NVMe disk)",
		        "%s: %.2f GB/s read, %.2f GB/s written", folder, read / 1e9, wrote / 1e9);
}

int ps_doctor_machine(const char *folder, bool json)
{
	struct machine m = {.json = json};
	struct stat st;

	if (stat(folder, &st) < 0)
		return ps_fail(PS_EXIT_USAGE, "--machine %s: %s", folder, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return ps_fail(PS_EXIT_USAGE, "--machine %s: is not a directory", folder);
	open_files(&m);
	shared_memory(&m);
	locked_memory(&m);
	passthrough(&m);
	huge_pages(&m);
	numa(&m);
	governor(&m);
	read_ahead(&m, folder);
	disk(&m, folder);
	if (json)
		printf("],\n \"hinders\": %u}\n", m.hinders);
	return m.hinders > 0 ? PS_EXIT_FAILED : PS_EXIT_OK;
}
