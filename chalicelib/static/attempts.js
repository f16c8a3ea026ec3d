// A sim's log holds the kernels of every simulator that ran it: of one whose node died, and of the one that began anew.

/**
 * Kernels in log order, apart by attempt. Within one process the running total rises by at least a kernel's own cycles, so
 * where it falls, or rises by less, another process has begun: the same first kernel anew has the same total as before.
 * Where the log does not say these numbers, a launch uid that the attempt has had already begins the next. The command
 * line has the same rule (cascade/kernels.py).
 */
export function attempts(kernels) {
  const found = [];
  let total = null;
  const uids = new Set();
  for (const kernel of kernels) {
    if (!found.length || beginsAnew(kernel, total, uids)) {
      found.push([]);
      total = null;
      uids.clear();
    }
    found.at(-1).push(kernel);
    total = kernel.tot_sim_cycles ?? total;
    if (kernel.launch_uid !== null) uids.add(kernel.launch_uid);
  }
  return found;
}

function beginsAnew({ tot_sim_cycles: now, sim_cycles: own, launch_uid: uid }, total, uids) {
  if (total !== null && now !== null) {
    if (now < total + (own ?? 0)) return true;
    if (own !== null) return false;
  }
  return uids.has(uid);
}

/** Of the kernels of one attempt: by the index of each that ended after one launched later, the launch uid of that one. */
export function overtaken(kernels) {
  const found = new Map();
  let latest = null;
  for (const { index, launch_uid: uid } of kernels) {
    if (uid === null) continue;
    if (latest !== null && uid < latest) found.set(index, latest);
    else latest = uid;
  }
  return found;
}

/** Whether kernels of one attempt certainly overlapped: one was overtaken, or ended while nothing was executed since the one before. */
export const overlap = (kernels) => overtaken(kernels).size > 0 || kernels.some(({ sim_insns: insns }, i) => i > 0 && insns === 0);
