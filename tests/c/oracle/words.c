/* The words of a line, and what is said in the trace. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

void die(const char *what)
{
	fprintf(stderr, "oracle: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* mark says something to the supervisor, which takes it by an error. */
void mark(const char *format, ...)
{
	static char path[4096];
	int n = sprintf(path, "/dev/infiniband/mark/");
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, sizeof path - n, format, args);
	va_end(args);
	if (open(path, O_RDONLY | O_CLOEXEC) >= 0 || errno != ENOENT)
		die(path);
}

void split(char *line)
{
	nwords = 0;
	for (char *w = strtok(line, " \n"); w && nwords < MAXWORDS; w = strtok(NULL, " \n"))
		words[nwords++] = w;
}

/* arg is argument i, without options; "" if there is none. */
const char *arg(int i)
{
	for (int k = 1; k < nwords; k++)
		if (!strchr(words[k], '=') && i-- == 0)
			return words[k];
	return "";
}

const char *opt(const char *key)
{
	size_t n = strlen(key);

	for (int k = 1; k < nwords; k++)
		if (strncmp(words[k], key, n) == 0 && words[k][n] == '=')
			return words[k] + n + 1;
	return NULL;
}

int has(const char *word)
{
	for (int k = 1; k < nwords; k++)
		if (strcmp(words[k], word) == 0)
			return 1;
	return 0;
}

uint64_t number(const char *s) { return s ? strtoull(s, NULL, 0) : 0; }
uint64_t num(int i) { return number(arg(i)); }
uint64_t optnum(const char *key) { return number(opt(key)); }

/* idx is the number in an object's name. */
int idx(const char *name)
{
	while (*name >= 'a' && *name <= 'z')
		name++;
	return (int)strtoul(name, NULL, 0) % MAXOBJ;
}

int self(void) { return idx(arg(0)); }

/* keep notes a new object. */
int keep(void *object)
{
	if (!object)
		return 0;
	snprintf(made[nmade++], sizeof made[0], "%s", arg(0));
	return 1;
}

const char *verdict(int failed) { return failed ? "refused" : "ok"; }

int access_of(const char *letters)
{
	int a = 0;

	for (; *letters; letters++)
		a |= *letters == 'l' ? IBV_ACCESS_LOCAL_WRITE : *letters == 'w' ? IBV_ACCESS_REMOTE_WRITE :
		     *letters == 'r' ? IBV_ACCESS_REMOTE_READ : *letters == 'a' ? IBV_ACCESS_REMOTE_ATOMIC :
		     *letters == 'b' ? IBV_ACCESS_MW_BIND : *letters == 'z' ? IBV_ACCESS_ZERO_BASED : 0;
	return a;
}

void fill_gid(union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[13] = 0x0a;
	gid->raw[15] = 1;
}
