"""Asks for one address and writes the answer into a file; prints the status."""

import sys
import urllib.error
import urllib.request

url, into = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    answer = opener.open(url, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
except OSError:
    sys.exit(1)
with open(into, "wb") as file:
    file.write(answer.read())
print(answer.status)
