"""1,000 clients that send a byte now and then, or nothing, on the daemon's socket. The sweeps of the
daemon must not come later for it: what they lag is read over TCP meanwhile."""

import re
import resource
import socket
import sys
import time
import urllib.request

CLIENTS = 1_000
SECONDS = 20
REQUEST = b"GET /api/v1/jobs HTTP/1.1\r\nhost: x\r\n\r\n"

path, port = sys.argv[1:]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192), hard))
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def figures():
    text = opener.open(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    read = lambda name: float(re.search(rf"^{name}(?:{{.*}})? ([\d.e+-]+)$", text, re.M).group(1))
    return (
        read("spotkeeper_sweep_lag_seconds"),
        read("spotkeeper_target_last_sweep_age_seconds"),
        read("process_open_fds"),
        re.search(r'^spotkeeper_api_calls_total{call="ListJobs",result="ok"} (\d+)', text, re.M),
    )


def client():
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect(path)
    except BlockingIOError:
        # The kernel's queue is full: it waits outside.
        one.close()
        return None
    return one


clients, waiting_outside, lags, ages, files = [], 0, [], [], []
before = int(figures()[3].group(1))
began = time.monotonic()
while time.monotonic() - began < SECONDS:
    while len(clients) < CLIENTS:
        one = client()
        if one is None:
            waiting_outside += 1
            break
        clients.append([one, 0])
    still = []
    for one, sent in clients:
        try:
            if sent < len(REQUEST) - 1:
                sent += one.send(REQUEST[sent : sent + 1])
            still.append([one, sent])
        except BlockingIOError:
            still.append([one, sent])
        except OSError:
            one.close()
    clients = still
    lag, age, opened, _ = figures()
    lags.append(lag)
    ages.append(age)
    files.append(opened)
    time.sleep(0.5)
sweeps = int(figures()[3].group(1)) - before

# A calm client comes to its turn once the slow ones are cut off.
for one, _ in clients:
    one.close()
calm = socket.socket(socket.AF_UNIX)
calm.settimeout(60)
calm.connect(path)
calm.sendall(REQUEST)
answer = calm.recv(64)
assert answer.startswith(b"HTTP/1.1 200"), answer
print(
    f"{len(clients)} slow clients at the end ({waiting_outside} rounds with a full queue): "
    f"{sweeps} sweeps in {SECONDS} s, largest lag {max(lags):.3f} s, "
    f"largest age {max(ages):.3f} s, at most {max(files):.0f} open files"
)
assert max(lags) < 1, lags
assert max(files) < 500, files
assert sweeps >= SECONDS / 2, sweeps
