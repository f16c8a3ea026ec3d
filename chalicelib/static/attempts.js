// A sim's log holds the kernels of every simulator that ran it: of one whose node died, and of the one that began anew.

/**
 * Kernels in log order, apart by attempt. Within one process the running total rises by at least a kernel's own cycles;
 * where it falls, or rises by less, another process has begun. (The same first kernel anew has the same total as before.)
 * A kernel without a total stays with those before it.
 */
export function attempts(kernels) {
  const found = [];
  let total = null;
  for (const kernel of kernels) {
    const now = kernel.tot_sim_cycles;
    const anew = now !== null && total !== null && now < total + (kernel.sim_cycles ?? 0);
    if (anew || !found.length) found.push([]);
    found.at(-1).push(kernel);
    if (now !== null) total = now;
  }
  return found;
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
