//! A vector that grows by chunks: what it holds never moves, so growth copies nothing.
//!
//! Source: the segmented array, as of Bagwell's VLists. Cost: an access reads the chunk's address first, which stays in
//! the cache; a new chunk is one allocation.

/// The vector; a chunk has `N` items.
#[derive(Debug)]
pub(super) struct Chunks<T, const N: usize> {
    chunks: Vec<Box<[T; N]>>,
    len: usize,
}

impl<T, const N: usize> Default for Chunks<T, N> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Clone + Default, const N: usize> Chunks<T, N> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item with its default value, and gives its place.
    pub(super) fn push(&mut self) -> usize {
        if self.len == self.chunks.len() * N {
            // Made on the heap: a chunk may be larger than the stack.
            let chunk = vec![T::default(); N].into_boxed_slice();
            self.chunks.push(chunk.try_into().unwrap_or_else(|_| unreachable!("N items")));
        }
        self.len += 1;
        self.len - 1
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * N * size_of::<T>() + self.chunks.capacity() * size_of::<Box<[T; N]>>()
    }
}

impl<T, const N: usize> Chunks<T, N> {
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / N).map(|chunk| &chunk[at % N])
    }
}

impl<T, const N: usize> std::ops::Index<usize> for Chunks<T, N> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / N][at % N]
    }
}

impl<T, const N: usize> std::ops::IndexMut<usize> for Chunks<T, N> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / N][at % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_where_they_are() {
        let mut chunks = Chunks::<u32, 4>::default();
        for n in 0..10 {
            let at = chunks.push();
            chunks[at] = n;
        }
        assert_eq!((chunks.len(), chunks[0], chunks[9]), (10, 0, 9));
        assert!(chunks.bytes() >= 12 * size_of::<u32>());
    }
}
