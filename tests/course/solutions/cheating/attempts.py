"""Attempts to reach beyond a solution. Each function returns something true if it gains what it is after.

The file is run twice: as a solution, where every attempt must fail, and by Python alone, where it must succeed, since
an attempt that cannot work proves nothing. The test replaces `WHERE`.
"""

import json
import os
import sys

WHERE = {}


def read_the_reference():
    return "SECRET" in open(WHERE["reference"]).read()


def list_the_course():
    return "reference.py" in os.listdir(os.path.dirname(WHERE["reference"]))


def read_a_neighbour():
    return "def twice" in open(WHERE["neighbour"]).read()


def execute_a_neighbour():
    names = {}
    exec(open(WHERE["neighbour"]).read(), names)
    return names["twice"](2) == 4


def import_a_neighbour():
    sys.path.insert(0, os.path.dirname(WHERE["neighbour"]))
    try:
        return __import__("neighbour").twice(2) == 4
    finally:
        del sys.path[0]


def follow_a_symbolic_link():
    os.symlink(WHERE["neighbour"], "symbolic_link")
    return "def twice" in open("symbolic_link").read()


def make_a_hard_link():
    os.link(WHERE["neighbour"], "hard_link")
    return "def twice" in open("hard_link").read()


def read_the_checkers_environment():
    return b"PATH" in open(f"/proc/{WHERE['checker']}/environ", "rb").read()


def open_the_checkers_memory():
    return os.open(f"/proc/{WHERE['checker']}/mem", os.O_RDONLY)


def read_the_list_of_users():
    return open("/etc/passwd").read()


def list_other_files():
    return os.listdir(os.path.dirname(WHERE["results"]))


def append_to_the_results():
    with open(WHERE["results"], "a") as file:
        return file.write("anna,100\n")


def replace_the_results():
    with open("mine.csv", "w") as file:
        file.write("anna,100\n")
    os.replace("mine.csv", WHERE["results"])
    return True


def empty_the_results():
    os.truncate(WHERE["results"], 0)
    return True


def overwrite_the_checker():
    return open(WHERE["checker_file"], "r+")


def delete_a_file():
    os.remove(WHERE["deleted"])
    return True


def change_a_mode():
    os.chmod(WHERE["results"], 0o666)
    return True


def connect_to_a_server():
    import socket

    return socket.create_connection(("127.0.0.1", WHERE["port"]), timeout=5)


def open_a_local_socket():
    import socket

    return socket.socket(socket.AF_UNIX)


def start_a_program():
    import subprocess

    return subprocess.run(["/bin/echo", "hello"], capture_output=True).stdout


def start_a_shell():
    return os.system("exit 0") == 0


def kill_a_process():
    os.kill(WHERE["victim"], 0)  # only asks whether the signal would be sent
    return True


def trace_a_process():
    import ctypes

    return ctypes.CDLL(None).ptrace(0x4206, WHERE["victim"], 0, 0) == 0  # PTRACE_SEIZE


def read_another_memory():
    import ctypes

    libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    read = libc.process_vm_readv(WHERE["victim"], vector, 1, vector, 1, 0)
    return read > 0 or os.strerror(ctypes.get_errno()) == "Bad address"


def hide_memory_in_a_file():
    return os.memfd_create("large")


def change_the_checkers_limits():
    import resource

    return resource.prlimit(WHERE["victim"], resource.RLIMIT_NOFILE)


def enter_a_namespace():
    import ctypes

    return ctypes.CDLL(None).unshare(0x04000000) == 0  # a new host name


def main():
    outcomes = {}
    for name, attempt in list(globals().items()):
        if callable(attempt) and name not in ("__loader__", "main", "twice"):
            try:
                outcomes[name] = "gained" if attempt() else "nothing"
            except BaseException as error:
                outcomes[name] = type(error).__name__
    print(json.dumps(outcomes))


def twice(x):
    return x


main()
