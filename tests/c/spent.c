// Runs a program and says, on a line of its own at the end of its output, what it spent:
//
//	spent MICROSECONDS KILOBYTES CPU
//
// from before its first instruction until it is gone, the greatest resident size, and how many of
// the microseconds the CPU ran it, its system calls included. The exit status is the program's. It is
// written in C to be smaller than what it starts: the resident size of a process counts from its
// fork.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double us(struct timeval t)
{
	return t.tv_sec * 1e6 + t.tv_usec;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: spent PROGRAM [ARGUMENT ...]\n");
		return 2;
	}
	double from = now();
	pid_t child = fork();
	if (child == 0) {
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	int status;
	struct rusage used;
	if (child < 0 || wait4(child, &status, 0, &used) != child) {
		perror("spent");
		return 1;
	}
	printf("spent %.1f %ld %.1f\n", now() - from, used.ru_maxrss, us(used.ru_utime) + us(used.ru_stime));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
