"""The attacks, as they run inside a process of their own: once without a sandbox, once in each locked configuration.

Started as `python -c <this text> <json>`. Modes: "plain" runs each attack in a fork of its own and must succeed,
"locked" calls lock_down first and then runs them one after the other. Prints one JSON object: name -> ["open",
detail] or ["closed", errno]. An attack returns when it worked and raises when it did not.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import struct
import sys

CONFIG = json.loads(sys.argv[1])
VICTIM = CONFIG[
    "victim"
]  # a process of the same user: {"pid", "address" of its secret, "path" and "abstract" of its socket}
TARGET = CONFIG["target"]  # a directory that is in the read set, with the file "library.txt"
OUTSIDE = CONFIG["outside"]  # a directory that is not, with the file "notes.txt"
SECRET = b"TOPSECRET-123456"

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
from capkernel.sandbox import syscalls  # noqa: E402

NUMBERS = syscalls.X86_64 if os.uname().machine == "x86_64" else syscalls.AARCH64
pid = VICTIM["pid"]


class Missing(Exception):
    """This machine cannot make the attack at all."""


def call(name, *arguments):
    number = name if isinstance(name, int) else NUMBERS.get(name)
    if number is None:
        raise Missing(f"no system call {name} on this machine")
    words = [ctypes.c_ulong(a & (2**64 - 1)) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *words)
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def outside(name="notes.txt"):
    return os.path.join(OUTSIDE, name)


def library():
    return os.path.join(TARGET, "library.txt")


def refused(condition, what):
    if condition:
        raise OSError(errno.EPERM, what)


ATTACKS = {}
ROOT_ONLY = set()  # need root even without a sandbox
METADATA = set()  # closed at level full only


def attack(function=None, *, root=False, metadata=False):
    def keep(function):
        name = function.__name__
        ATTACKS[name] = function
        if root:
            ROOT_ONLY.add(name)
        if metadata:
            METADATA.add(name)
        return function

    return keep(function) if function else keep


# --- files -----------------------------------------------------------------------------------------------------------
@attack
def open_passwd():
    return open("/etc/passwd").read(4)


@attack
def open_user_file():
    return open(outside()).read(4)


@attack
def open_relative_to_cwd():
    return open("notes.txt").read(4)


@attack
def list_user_directory():
    refused("notes.txt" not in os.listdir(OUTSIDE), "an empty directory of a mount namespace")


@attack
def o_path_handle():
    return os.open(outside(), os.O_PATH)


@attack
def o_path_reopened():
    return open(f"/proc/self/fd/{os.open(outside(), os.O_PATH)}").read(4)


@attack
def openat2_user_file():
    how = struct.pack("<QQQ", os.O_RDONLY, 0, 0)
    return call("openat2", -100, ctypes.c_char_p(outside().encode()), ctypes.create_string_buffer(how, 24), 24)


@attack
def list_root():
    refused(not {"boot", "mnt", "srv"} & set(os.listdir("/")), "the root of a mount namespace")


@attack
def list_proc():
    refused(str(pid) not in os.listdir("/proc"), "no processes in sight")


@attack
def victim_environ():
    return open(f"/proc/{pid}/environ", "rb").read(4)


@attack
def victim_command_line():
    return open(f"/proc/{pid}/cmdline", "rb").read(4)


@attack
def victim_memory_file():
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(VICTIM["address"])
        refused(memory.read(16) != SECRET, "other bytes")


@attack
def own_environ():
    return open("/proc/self/environ", "rb").read(4)


@attack
def own_memory_file():
    return open("/proc/self/mem", "r+b", buffering=0)


@attack
def own_descriptors():
    return os.listdir("/proc/self/fd")


@attack
def create_in_tmp():
    path = f"/tmp/capkernel-attack-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
    os.unlink(path)


@attack
def create_in_shm():
    path = f"/dev/shm/capkernel-attack-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
    os.unlink(path)


@attack
def create_in_read_set():
    path = os.path.join(TARGET, "new.txt")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
    os.unlink(path)


@attack
def write_read_set():
    return os.close(os.open(library(), os.O_WRONLY))


@attack
def truncate_by_read_only_open():
    """O_RDONLY | O_TRUNC asks Landlock before version 3 for reading only."""
    os.close(os.open(library(), os.O_RDONLY | os.O_TRUNC))
    refused(os.stat(library()).st_size, "still there")


@attack
def open_with_access_mode_3():
    """Access mode 3 is neither reading nor writing to Landlock."""
    return os.close(os.open(outside(), 3))


@attack
def truncate_by_path():
    return call("truncate", ctypes.c_char_p(library().encode()), 0)


@attack
def rename_user_file():
    return os.rename(outside("rename.txt"), outside("renamed.txt"))


@attack
def unlink_user_file():
    return os.unlink(outside("unlink.txt"))


@attack
def hard_link():
    return os.link(outside(), os.path.join(CONFIG["scratch"], "hard"))


@attack
def symlink_outside():
    return os.symlink("/etc/passwd", outside("link"))


@attack
def fifo_outside():
    return os.mkfifo(outside("fifo"))


@attack
def set_attribute():
    return os.setxattr(outside(), "user.a", b"1")


@attack
def chmod_takes_effect():
    """The call may say it worked; the attack works only when the mode changed."""
    before = os.stat(library()).st_mode
    os.chmod(library(), 0o777 if before & 0o777 != 0o777 else 0o700)
    refused(os.stat(library()).st_mode == before, "unchanged")


@attack
def chmod_outside_takes_effect():
    before = os.stat(outside()).st_mode
    os.chmod(outside(), 0o666 if before & 0o777 != 0o666 else 0o600)
    refused(os.stat(outside()).st_mode == before, "unchanged")


@attack
def fchmodat2_takes_effect():
    before = os.stat(library()).st_mode
    call("fchmodat2", -100, ctypes.c_char_p(library().encode()), 0o755 if before & 0o777 != 0o755 else 0o711, 0)
    refused(os.stat(library()).st_mode == before, "unchanged")


@attack
def utime_takes_effect():
    os.utime(library(), (1, 1))
    refused(os.stat(library()).st_mtime != 1, "unchanged")


@attack
def chown_to_self():
    return os.chown(library(), -1, os.getgid())


@attack
def change_directory():
    return os.chdir("/usr")


@attack
def grow_inherited_file_much():
    """A descriptor that is open for writing must not fill the disk (here: a hole of 300 MiB)."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return os.pwrite(CONFIG["grow_fd"], b"x", 300 << 20)


@attack
def grow_inherited_file():
    """Without a scratch directory no file may grow at all."""
    descriptor = CONFIG["grow_fd"]
    os.lseek(descriptor, 0, os.SEEK_END)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return os.write(descriptor, b"x" * 100)


@attack(metadata=True)
def stat_user_file():
    return os.stat(outside()).st_size


@attack(metadata=True)
def stat_system_file():
    return os.stat("/etc/passwd").st_size


@attack(metadata=True)
def access_user_file():
    refused(not os.access(outside(), os.F_OK), "not there")


# --- sockets ---------------------------------------------------------------------------------------------------------
@attack
def socket_inet():
    return socket.socket()


@attack
def socket_inet_datagram():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@attack
def socket_unix():
    return socket.socket(socket.AF_UNIX)


@attack
def socket_netlink():
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


@attack
def socket_vsock():
    return socket.socket(40, socket.SOCK_STREAM)


@attack
def socket_alg():
    return socket.socket(38, socket.SOCK_SEQPACKET)


@attack
def socketpair_datagram_to_path():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendmsg([b"x"], [], 0, VICTIM["path"])


@attack
def socketpair_datagram_to_abstract():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendmsg([b"x"], [], 0, "\0" + VICTIM["abstract"])


@attack
def socketpair_datagram_with_flags():
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    return socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", VICTIM["path"])


@attack
def socketpair_datagram_connected():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].connect(VICTIM["path"])


@attack
def socket_filter_attached():
    """setsockopt(SO_ATTACH_FILTER) on an allowed socketpair: a door into the kernel that no cell needs."""
    code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0), 8)
    program = struct.pack("<HxxxxxxQ", 1, ctypes.addressof(code))
    return socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, 26, program)


# --- processes -------------------------------------------------------------------------------------------------------
def _ended(child):
    os.waitpid(child, 0)


@attack
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def fork_raw():
    child = call("fork")
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def clone_raw():
    child = call("clone", int(signal.SIGCHLD), 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def clone_with_upper_half():
    """The kernel looks at the low half of the flags only."""
    child = call("clone", 0xF0000000_00000000 | int(signal.SIGCHLD), 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def clone3_raw():
    arguments = ctypes.create_string_buffer(struct.pack("<QQQQQQQQ", 0, 0, 0, 0, int(signal.SIGCHLD), 0, 0, 0), 64)
    child = call("clone3", arguments, 64)
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def clone_new_user_namespace():
    child = call("clone", 0x10000000 | int(signal.SIGCHLD), 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    _ended(child)


@attack
def subprocess_run():
    import subprocess

    subprocess.run([CONFIG["true"]], check=True)


@attack
def posix_spawn():
    _ended(os.posix_spawn(CONFIG["true"], ["true"], {}))


@attack
def multiprocessing_process():
    import multiprocessing

    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()


@attack
def execve():
    os.write(CONFIG["report_fd"], b"")
    os.execv(CONFIG["true"], ["true"])


@attack
def memfd():
    return os.memfd_create("x")


@attack
def memfd_executed():
    descriptor = os.memfd_create("x", 0)
    with open(CONFIG["true"], "rb") as program:
        os.write(descriptor, program.read())
    os.execve(descriptor, ["true"], {})


# --- signals and other processes
# ---------------------------------------------------------------------------------------
@attack
def kill_victim_0():
    return os.kill(pid, 0)


@attack
def kill_victim_usr1():
    return os.kill(pid, signal.SIGUSR1)


@attack
def kill_all_0():
    return os.kill(-1, 0)


@attack
def kill_group_0():
    return os.kill(0, 0)


@attack
def tgkill():
    return call("tgkill", pid, pid, 0)


@attack
def tkill():
    return call("tkill", pid, 0)


@attack
def sigqueue():
    information = ctypes.create_string_buffer(struct.pack("<iii", int(signal.SIGUSR1), 0, -1), 128)
    return call("rt_sigqueueinfo", pid, int(signal.SIGUSR1), information)


@attack
def pidfd_signal():
    return signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGUSR1)


@attack
def signal_by_owned_descriptor():
    """F_SETOWN + F_SETSIG + O_ASYNC: the kernel sends the signal when the descriptor becomes readable."""
    import fcntl

    left, right = socket.socketpair()
    fcntl.fcntl(left, fcntl.F_SETOWN, pid)
    fcntl.fcntl(left, 10, int(signal.SIGUSR1))
    fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    right.send(b"x")


@attack
def ioctl_off_the_list():
    import fcntl

    return fcntl.ioctl(socket.socketpair()[0], 0x8901, struct.pack("i", pid))  # FIOSETOWN


@attack
def getsid_oracle():
    return os.getsid(pid)


@attack
def getpgid_oracle():
    return os.getpgid(pid)


@attack
def prlimit_oracle():
    import resource

    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@attack
def own_limit_changed():
    import resource

    return resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


@attack
def affinity_oracle():
    return os.sched_getaffinity(pid)


@attack
def affinity_changed():
    return os.sched_setaffinity(pid, os.sched_getaffinity(0))


@attack
def scheduler_oracle():
    return os.sched_getscheduler(pid)


@attack
def priority_oracle():
    return os.getpriority(os.PRIO_PROCESS, pid)


@attack
def priority_changed():
    return os.setpriority(os.PRIO_PROCESS, pid, 5)


@attack
def robust_list_oracle():
    head, size = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    return call("get_robust_list", pid, head, size)


# --- tracing
# -----------------------------------------------------------------------------------------------------------
@attack
def ptrace_seize():
    call("ptrace", 0x4206, pid, 0, 0)


@attack
def ptrace_traceme():
    return call("ptrace", 0, 0, 0, 0)


@attack
def process_vm_readv():
    buffer = ctypes.create_string_buffer(16)
    local = ctypes.create_string_buffer(struct.pack("<QQ", ctypes.addressof(buffer), 16), 16)
    remote = ctypes.create_string_buffer(struct.pack("<QQ", VICTIM["address"], 16), 16)
    call("process_vm_readv", pid, local, 1, remote, 1, 0)
    refused(buffer.raw != SECRET, "other bytes")


@attack
def pidfd_getfd():
    return call("pidfd_getfd", os.pidfd_open(pid), 0, 0)


@attack
def kcmp():
    return call("kcmp", os.getpid(), pid, 0, 0, 0)


# --- the kernel's other interfaces
# ---------------------------------------------------------------------------------------
@attack
def io_uring():
    return call("io_uring_setup", 4, ctypes.create_string_buffer(120))


@attack
def keyring():
    return call("add_key", ctypes.c_char_p(b"user"), ctypes.c_char_p(b"a"), ctypes.c_char_p(b"b"), 1, -3)


@attack
def keyctl():
    return call("keyctl", 0, -3, 1)


@attack
def userfault():
    return call("userfaultfd", 1)


@attack(root=True)
def bpf_map():
    return call("bpf", 0, ctypes.create_string_buffer(struct.pack("<IIII", 2, 4, 4, 1), 128), 128)


@attack(root=True)
def perf_event():
    attribute = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 1) + bytes(96), 112)
    return call("perf_event_open", attribute, 0, -1, -1, 0)


@attack
def unshare_user():
    return call("unshare", 0x10000000)


@attack(root=True)
def mount_tmpfs():
    call("unshare", 0x20000)  # its own mount namespace, so that nothing stays mounted
    name = ctypes.c_char_p(b"tmpfs")
    return call("mount", name, ctypes.c_char_p(b"/mnt"), name, 0, 0)


@attack(root=True)
def chroot():
    return os.chroot("/tmp")


@attack(root=True)
def setuid():
    return os.setuid(1)


@attack(root=True)
def setns():
    return call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


@attack
def inotify():
    return call("inotify_init1", 0)


@attack
def shared_memory():
    return call("shmctl", call("shmget", 0, 4096, 0o1600), 0, 0)


@attack
def message_queue():
    name = f"capkernel-attack-{os.getpid()}".encode()
    os.close(call("mq_open", ctypes.c_char_p(name), 0o102, 0o600, 0))
    libc.mq_unlink(b"/" + name)


@attack
def file_handle():
    handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 136)
    return call("name_to_handle_at", -100, ctypes.c_char_p(b"/usr"), handle, ctypes.create_string_buffer(8), 0)


@attack
def personality():
    return call("personality", 0xFFFFFFFF)


@attack
def dumpable_again():
    refused(libc.prctl(4, 1, 0, 0, 0) != 0, "refused")


@attack
def parent_death_signal_cleared():
    refused(libc.prctl(1, 0, 0, 0, 0) != 0, "refused")


@attack
def traced_by_anyone():
    if not os.path.exists("/proc/sys/kernel/yama") and not CONFIG["locked"]:
        raise Missing("no Yama")
    refused(libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0) != 0, "refused")


@attack
def further_filter():
    code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000), 8)
    refused(libc.prctl(38, 1, 0, 0, 0) != 0 and not CONFIG["locked"], "no_new_privs")
    return call("seccomp", 1, 0, ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(code)), 16))


@attack
def x32_call():
    if os.uname().machine != "x86_64":
        raise Missing("x86_64 only")
    return call(0x40000000 | 39)


def int80():
    """A 32-bit system call (getpid) from 64-bit code. Not in the list: the filter kills the process for it."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")  # push rbx; mov eax, 20; int 0x80; pop rbx; ret
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return function()


# Without a sandbox these answer "no such feature" where the kernel is built or set up without it.
FEATURES = {errno.ENOSYS, errno.EAFNOSUPPORT, errno.EOPNOTSUPP, errno.ENODEV}


def attempt(function):
    try:
        result = function()
    except Missing as reason:
        return ["missing", str(reason)]
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        return ["missing", name] if error.errno in FEATURES and not CONFIG["locked"] else ["closed", name]
    except BaseException as error:
        return ["closed", type(error).__name__]
    return ["open", repr(result)[:60]]


def attempt_in_fork(name):
    """One attack in a process of its own; an exec or an exit of the child counts as what it did."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.set_inheritable(write_end, False)
        os.write(write_end, json.dumps(attempt(ATTACKS[name])).encode())
        os._exit(0)
    os.close(write_end)
    text = b""
    while part := os.read(read_end, 4096):
        text += part
    os.close(read_end)
    status = os.waitpid(child, 0)[1]
    if text:
        return json.loads(text)
    return ["open", "exec"] if status == 0 else ["closed", f"status {status}"]


def main():
    results = {}
    if CONFIG["locked"]:
        from capkernel.sandbox import Profile
        from capkernel.sandbox.lockdown import _Features, lock_down

        profile = Profile.from_json(CONFIG["profile"])
        report = lock_down(profile, inside_bwrap=CONFIG["bwrap"], _features=_Features(**CONFIG["features"]))
        results["level"] = report.level.label
        if CONFIG["int80"]:
            results["int80"] = ["open", int80()]
        for name in CONFIG["names"]:
            results[name] = attempt(ATTACKS[name])
    else:
        if CONFIG["int80"]:
            results["int80"] = ["open", int80()]
        for name in CONFIG["names"]:
            results[name] = attempt_in_fork(name)
    os.write(CONFIG["report_fd"], json.dumps(results).encode())


if __name__ == "__main__":
    if "names" not in CONFIG:
        sys.stdout.write(json.dumps({"all": list(ATTACKS), "root": sorted(ROOT_ONLY), "metadata": sorted(METADATA)}))
    else:
        main()
