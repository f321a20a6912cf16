#!/usr/bin/env python3
"""Writes spotkeeper(1) from what the program says of itself: man.py BINARY > spotkeeper.1"""

import os
import re
import subprocess
import sys

HEAD = r""".TH SPOTKEEPER 1 "{date}" "spotkeeper {version}" "User Commands"
.SH NAME
spotkeeper \- keeps preemptible training jobs on Alibaba Cloud PAI\-DLC alive
.SH SYNOPSIS
.B spotkeeper
.I VERB
[\fIoptions\fR]
.SH DESCRIPTION
The daemon is
.BR "spotkeeper run" ,
under systemd the unit
.IR spotkeeper.service .
All other verbs ask it, or need no daemon.
"""

FILES = r""".SH FILES
.TP
.I /etc/spotkeeper/spotkeeper.toml
The daemon file; \fBspotkeeper init\fR makes it.
.TP
.I /etc/spotkeeper/jobs.d/*.toml
Job files, one for each job.
.TP
.I /etc/spotkeeper/secrets
Values that job files name.
.TP
.I /etc/spotkeeper/environment, /etc/credstore/spotkeeper-keys
Keys for the service.
.TP
.I /var/lib/spotkeeper
The state.
.TP
.I /run/spotkeeper/api.sock
The socket; members of the group spotkeeper may use it.
.SH SEE ALSO
.IR /usr/share/doc/spotkeeper/docs ,
.BR systemctl (1),
.BR journalctl (1)
"""


def roff(text):
    """A preformatted block."""
    lines = []
    for line in text.rstrip().splitlines():
        line = line.replace("\\", "\\e").replace("-", "\\-")
        lines.append("\\&" + line if line.startswith((".", "'")) else line)
    return ".nf\n" + "\n".join(lines) + "\n.fi\n"


def main():
    binary = sys.argv[1]

    def say(*words):
        env = {**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
        env.pop("SPOTKEEPER_SOCKET", None)
        done = subprocess.run([binary, *words], capture_output=True, text=True, env=env)
        if done.returncode != 0:
            sys.exit(f"{binary} {' '.join(words)}: {done.stderr}")
        return done.stdout

    version = say("--version").split()[1]
    date = __import__("datetime").date.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    out = [HEAD.format(date=date.isoformat(), version=version)]
    top = say("--help")
    verbs = re.findall(r"^  ([a-z][a-z-]*)  ", top.split("Commands:")[1].split("\n\n")[0], re.M)
    if len(verbs) < 10:
        sys.exit("the verbs cannot be found in --help")
    out.append(".SH COMMANDS\n" + roff(top))
    for verb in verbs:
        out.append(f'.SS "spotkeeper {verb}"\n' + roff(say(verb, "--help")))
    with open("docs/exit-codes.md", encoding="utf-8") as table:
        codes = re.findall(r"^\| (\d+) \| ([^|]*) \|", table.read(), re.M)
    out.append(".SH EXIT STATUS\n")
    for code, meaning in codes:
        meaning = meaning.replace("`", "").replace("-", "\\-")
        out.append(f".TP\n.B {code}\n{meaning}\n")
    out.append(FILES)
    sys.stdout.write("".join(out))


main()
