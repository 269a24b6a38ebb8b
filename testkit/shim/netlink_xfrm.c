/* Leads a program's NETLINK_XFRM sockets to a recorder: LD_PRELOAD, for tests.
 *
 * A socket becomes a Unix socket (SOCK_SEQPACKET) that is connected to $NETLINK_XFRM_SOCKET. What the program sends has one
 * byte in front:
 *
 *     M  a netlink datagram
 *     E  multicast groups (4 bytes, a mask) and a netlink datagram that it sends to those who have joined one of them
 *     G  its port (4 bytes) and the multicast groups that it has joined (4 bytes, a mask), in the machine's byte order
 *
 * The recorder's packets are netlink datagrams as they are; the program sees them as the kernel's (port 0). All other
 * sockets are left alone. cc -shared -fPIC -o netlink_xfrm.so netlink_xfrm.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS 1024
#define PORT_STEP 65536

static struct {
    char ours;
    uint32_t port, groups;
} fds[FDS];
static uint32_t opened;

static int ours(int fd)
{
    return fd >= 0 && fd < FDS && fds[fd].ours;
}

#define NEXT(name) \
    static __typeof__(&name) next; \
    if (!next) \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int socket(int domain, int type, int protocol)
{
    NEXT(socket);
    const char *path = getenv("NETLINK_XFRM_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd;

    if (domain != AF_NETLINK || protocol != NETLINK_XFRM || !path)
        return next(domain, type, protocol);
    fd = next(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
    if (fd < 0)
        return fd;
    strncpy(at.sun_path, path, sizeof(at.sun_path) - 1);
    if (fd >= FDS || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
        close(fd);
        errno = EPROTONOSUPPORT;
        return -1;
    }
    memset(&fds[fd], 0, sizeof(fds[fd]));
    fds[fd].port = getpid() + PORT_STEP * opened++;
    fds[fd].ours = 1;
    return fd;
}

int close(int fd)
{
    NEXT(close);
    if (ours(fd))
        fds[fd].ours = 0;
    return next(fd);
}

static ssize_t tagged(int fd, char tag, const struct iovec *parts, size_t count, int flags)
{
    struct iovec all[17] = {{&tag, 1}};
    struct msghdr message = {.msg_iov = all, .msg_iovlen = count + 1};
    ssize_t sent;

    if (count > 16) {
        errno = EMSGSIZE;
        return -1;
    }
    memcpy(all + 1, parts, count * sizeof(*parts));
    NEXT(sendmsg);
    sent = next(fd, &message, flags);
    return sent > 0 ? sent - 1 : sent;
}

static int joined(int fd)
{
    struct iovec parts[2] = {{&fds[fd].port, 4}, {&fds[fd].groups, 4}};
    return tagged(fd, 'G', parts, 2, 0) < 0 ? -1 : 0;
}

int bind(int fd, const struct sockaddr *at, socklen_t len)
{
    NEXT(bind);
    if (!ours(fd))
        return next(fd, at, len);
    if (((const struct sockaddr_nl *)at)->nl_pid)
        fds[fd].port = ((const struct sockaddr_nl *)at)->nl_pid;
    fds[fd].groups |= ((const struct sockaddr_nl *)at)->nl_groups;
    return joined(fd);
}

int connect(int fd, const struct sockaddr *at, socklen_t len)
{
    NEXT(connect);
    return ours(fd) ? 0 : next(fd, at, len);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    NEXT(setsockopt);
    if (!ours(fd))
        return next(fd, level, name, value, len);
    if (level == SOL_NETLINK && name == NETLINK_ADD_MEMBERSHIP) {
        fds[fd].groups |= 1u << (*(const uint32_t *)value - 1);
        return joined(fd);
    }
    return 0;
}

static void named(struct sockaddr *at, socklen_t *len, uint32_t port)
{
    struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_pid = port};

    if (!at || !len)
        return;
    memcpy(at, &name, *len < sizeof(name) ? *len : sizeof(name));
    *len = sizeof(name);
}

int getsockname(int fd, struct sockaddr *at, socklen_t *len)
{
    NEXT(getsockname);
    if (!ours(fd))
        return next(fd, at, len);
    named(at, len, fds[fd].port);
    return 0;
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    NEXT(sendto);
    struct iovec part = {(void *)bytes, len};
    if (ours(fd) && to && to_len >= sizeof(struct sockaddr_nl) && ((const struct sockaddr_nl *)to)->nl_groups) {
        uint32_t groups = ((const struct sockaddr_nl *)to)->nl_groups;
        struct iovec parts[2] = {{&groups, 4}, part};
        ssize_t sent = tagged(fd, 'E', parts, 2, flags);
        return sent < 0 ? sent : sent - 4;
    }
    return ours(fd) ? tagged(fd, 'M', &part, 1, flags) : next(fd, bytes, len, flags, to, to_len);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    NEXT(send);
    struct iovec part = {(void *)bytes, len};
    return ours(fd) ? tagged(fd, 'M', &part, 1, flags) : next(fd, bytes, len, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    NEXT(sendmsg);
    if (!ours(fd))
        return next(fd, message, flags);
    return tagged(fd, 'M', message->msg_iov, message->msg_iovlen, flags);
}

ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    NEXT(recvfrom);
    ssize_t got;

    if (!ours(fd))
        return next(fd, bytes, len, flags, from, from_len);
    got = next(fd, bytes, len, flags, NULL, NULL);
    named(from, from_len, 0);
    return got;
}

/* What _FORTIFY_SOURCE makes of it. */
ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t size, int flags, struct sockaddr *from, socklen_t *from_len)
{
    return recvfrom(fd, bytes, len < size ? len : size, flags, from, from_len);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    NEXT(recvmsg);
    socklen_t name_len = message->msg_namelen;
    void *name = message->msg_name;
    ssize_t got;

    if (!ours(fd))
        return next(fd, message, flags);
    message->msg_name = NULL;
    message->msg_namelen = 0;
    got = next(fd, message, flags);
    message->msg_name = name;
    message->msg_namelen = name_len;
    named(name, &message->msg_namelen, 0);
    return got;
}
