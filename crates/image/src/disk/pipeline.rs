//! Work on all clusters of a disk, on all cores, with the results in order: one thread finds what there is to do,
//! several do it, the caller takes what comes out. What is under way is bounded, and so is memory.

use super::qcow2::writer::{CLUSTER, Packed};
use super::source::{Source, is_zero};
use super::{Meter, at};
use crate::{Error, Result};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Clusters that a worker takes at once: 1 MiB.
const BATCH: usize = 16;
/// More cores are faster than the disks that they would wait for.
const MOST_WORKERS: usize = 8;
/// QEMU's own choice, and the one that is as fast as disks.
const LEVEL: i32 = 3;

type Results<T> = Result<Vec<(u64, T)>>;
type Batch<T> = (Vec<u64>, SyncSender<Results<T>>);

/// Calls the work that `make` makes for every cluster that `next` finds, and `sink` with every result in order, until that
/// says false.
pub(crate) fn run<T, W>(
    size: u64,
    meter: &Meter,
    next: impl Fn(u64) -> Result<Option<u64>> + Sync,
    make: impl Fn() -> Result<W> + Sync,
    mut sink: impl FnMut(u64, T) -> Result<bool>,
) -> Result<()>
where
    T: Send,
    W: FnMut(u64) -> Result<Option<T>>,
{
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_WORKERS));
    std::thread::scope(|scope| {
        let (jobs, taken) = sync_channel::<Batch<T>>(workers);
        let (order, ordered) = sync_channel::<Receiver<Results<T>>>(workers * 2);
        let taken = Mutex::new(taken);
        // The last worker to go drops its end, and who waits for it is told.
        let taken = std::sync::Arc::new(taken);
        for _ in 0..workers {
            let taken = taken.clone();
            let make = &make;
            scope.spawn(move || work(&taken, make));
        }
        drop(taken);
        let next = &next;
        let finder = scope.spawn(move || find(size, next, &jobs, &order));
        for results in ordered {
            meter.check()?;
            let Ok(results) = results.recv() else { return Err(Error::Failed("a worker ended early".into())) };
            for (cluster, result) in results? {
                meter.reach(cluster * CLUSTER);
                if !sink(cluster, result)? {
                    return Ok(());
                }
            }
        }
        finder.join().unwrap_or_else(|_| Err(Error::Failed("the disk could not be walked".into())))?;
        meter.reach(size);
        Ok(())
    })
}

fn find<T>(
    size: u64,
    next: &impl Fn(u64) -> Result<Option<u64>>,
    jobs: &SyncSender<Batch<T>>,
    order: &SyncSender<Receiver<Results<T>>>,
) -> Result<()> {
    let mut position = 0;
    let mut clusters = Vec::with_capacity(BATCH);
    loop {
        let found = if position < size { next(position)? } else { None };
        if let Some(found) = found {
            clusters.push(found / CLUSTER);
            position = (found / CLUSTER + 1) * CLUSTER;
        }
        if clusters.len() == BATCH || (found.is_none() && !clusters.is_empty()) {
            let (reply, result) = sync_channel(1);
            // An error means that the caller is gone: it has its own reason.
            if order.send(result).is_err() || jobs.send((std::mem::take(&mut clusters), reply)).is_err() {
                return Ok(());
            }
        }
        if found.is_none() {
            return Ok(());
        }
    }
}

fn work<T, W: FnMut(u64) -> Result<Option<T>>>(taken: &Mutex<Receiver<Batch<T>>>, make: impl Fn() -> Result<W>) {
    let mut job = make();
    loop {
        let Ok(batch) = taken.lock().map(|taken| taken.recv()) else { return };
        let Ok((clusters, reply)) = batch else { return };
        let results = match &mut job {
            Ok(job) => clusters.iter().filter_map(|cluster| Some((*cluster, job(*cluster).transpose()?))).try_fold(
                Vec::with_capacity(BATCH),
                |mut all, (cluster, result)| {
                    all.push((cluster, result?));
                    Ok(all)
                },
            ),
            Err(e) => Err(e.clone()),
        };
        let _ = reply.send(results);
    }
}

/// All clusters of a disk that are not zero, compressed.
pub(crate) fn pack(source: &Source, path: &Path, meter: &Meter, mut sink: impl FnMut(u64, Packed) -> Result<()>) -> Result<()> {
    let make = || {
        let mut packer = Packer::new(path)?;
        Ok(move |cluster| packer.pack(source, cluster))
    };
    run(source.size(), meter, |from| source.next_data(from), make, |cluster, packed| sink(cluster, packed).map(|()| true))
}

pub(crate) struct Packer<'a> {
    compressor: zstd::bulk::Compressor<'static>,
    buffer: Vec<u8>,
    path: &'a Path,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(path: &'a Path) -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(|e| at(path, &e))?;
        Ok(Self { compressor, buffer: vec![0; CLUSTER as usize], path })
    }

    /// Nothing, where there are only zeros.
    pub(crate) fn pack(&mut self, source: &Source, cluster: u64) -> Result<Option<Packed>> {
        source.read(&mut self.buffer, cluster * CLUSTER)?;
        if is_zero(&self.buffer) {
            return Ok(None);
        }
        Packed::new(&mut self.compressor, &self.buffer).map(Some).map_err(|e| at(self.path, &e))
    }
}
