//! A header in a file of its own, for data that is elsewhere.
//!
//! ```text
//! new file     header made, without a name ─► data gets its name ─► header gets its name
//! replaced     the same, and the old header has another name until all is done
//! ```
//!
//! Two files do not change in one step. With the old header out of the way, no header opens onto the data of another,
//! whenever it ends; and none is lost: before its data has its name, the new one has one by which it is found, and which it keeps where it
//! cannot have its own.

use std::path::Path;

use super::prepared::{Prepared, PriorContents};
use super::{Create, Draft, Progress};
use crate::Result;
use crate::base::BaseSource;
use crate::copy::{Copy, ResumeError};
use crate::error::Problem;
use crate::target::Target;

impl Create {
    /// Refuses a header in the place of its data, which would be lost, before anything else is done.
    pub(super) fn refuse_over_data(&self, target: &BaseSource) -> Result<()> {
        let Some(path) = &self.header else {
            return Ok(());
        };
        if matches!(target, BaseSource::Target(target) if target.is_replaced_by(path)) {
            return Err(Problem::HeaderOverData.on(path.display()));
        }
        Ok(())
    }

    /// Refuses another place for the header that is none.
    pub(super) fn refuse_header(&self, target: &BaseSource, copy: &Copy) -> Result<()> {
        let Some(path) = &self.header else {
            return Ok(());
        };
        let place = Target::Path(path.clone());
        copy.source.refuse_same(&place)?;
        if copy.resume.is_some() {
            return Err(Problem::Resume(ResumeError::Apart).on(target));
        }
        Draft::new(path, self.replace).map(drop)
    }

    /// The header in a file of its own, which has no name yet. Made before there is any data, so that what finds no room
    /// for it has overwritten nothing.
    pub(super) fn header_apart(&self, prepared: &Prepared, path: &Path) -> Result<Draft> {
        let draft = Draft::told(path, self.replace, |progress| self.tell(progress))?;
        draft.refuse_left()?;
        if let Some(aside) = draft.aside()? {
            self.tell(Progress::SetAside(&aside))?;
        }
        draft.set_size(prepared.bytes.len() as u64, false)?;
        draft.write(|file| prepared.put(file, PriorContents::IsZeros))?;
        draft.sync()?;
        Ok(draft)
    }
}

#[cfg(test)]
#[path = "apart_tests.rs"]
mod power_tests;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::create::making::publish_both;

    /// The data has its name, and the header does not get its own: as where the program is killed between the two.
    #[test]
    fn data_that_is_replaced_is_under_no_old_header_and_the_new_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let [header, aside, new] =
            ["header", ".header.cryptline-old", ".header.cryptline-new"].map(|name| folder.path().join(name));
        // It takes the name of the old header, which it gets only where that is out of the way.
        let new_data = Draft::new(&header, false).unwrap();
        std::fs::write(new_data.path(), "new data").unwrap();
        std::fs::write(&header, "old header").unwrap();
        let new_header = Draft::new(&header, true).unwrap();
        std::fs::write(new_header.path(), "new header").unwrap();
        let refused = publish_both(new_data, Some(new_header)).unwrap_err();
        assert_eq!(std::fs::read(&header).unwrap(), b"new data");
        assert_eq!(std::fs::read(&aside).unwrap(), b"old header");
        assert_eq!(std::fs::read(&new).unwrap(), b"new header");
        assert!(matches!(refused.problem(), Problem::HeaderKept(at, _) if *at == new), "{refused}");
        assert_eq!(refused.kind(), crate::ErrorKind::Busy);
        assert!(refused.to_string().contains(".header.cryptline-new"), "{refused}");
        // The next one neither replaces it nor goes on without a word.
        let another = Draft::new(&header, true).unwrap();
        let refused = another.refuse_left().unwrap_err();
        assert!(matches!(refused.problem(), Problem::HeaderLeft), "{refused}");
        assert!(refused.to_string().contains(".header.cryptline-new"), "{refused}");
        assert!(another.found_if_cut_off().is_err());
        assert_eq!(std::fs::read(&new).unwrap(), b"new header");
    }

    #[test]
    fn header_that_cannot_replace_what_is_there_now_keeps_the_name_it_is_found_by() {
        let folder = tempfile::tempdir().unwrap();
        let [data, header, new] = ["data", "header", ".header.cryptline-new"].map(|name| folder.path().join(name));
        std::fs::write(&data, "old data").unwrap();
        let [new_data, new_header] = [&data, &header].map(|path| Draft::new(path, true).unwrap());
        std::fs::write(new_data.path(), "new data").unwrap();
        std::fs::write(new_header.path(), "new header").unwrap();
        std::fs::create_dir(&header).unwrap();
        let refused = publish_both(new_data, Some(new_header)).unwrap_err();
        assert_eq!(std::fs::read(&data).unwrap(), b"new data");
        assert_eq!(std::fs::read(&new).unwrap(), b"new header");
        assert!(matches!(refused.problem(), Problem::HeaderKept(..)), "{refused}");
        assert_eq!(refused.kind(), crate::ErrorKind::Busy);
    }

    /// Old data with its header, and what is to replace both.
    fn replacing(folder: &Path) -> ([PathBuf; 2], [Draft; 2]) {
        let [data, header] = ["data", "header"].map(|name| folder.join(name));
        std::fs::write(&data, "old data").unwrap();
        std::fs::write(&header, "old header").unwrap();
        let drafts = [&data, &header].map(|path| Draft::new(path, true).unwrap());
        ([data, header], drafts)
    }

    #[test]
    fn nothing_is_left_of_the_names_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let ([_, header], [new_data, new_header]) = replacing(folder.path());
        std::fs::write(new_header.path(), "new header").unwrap();
        publish_both(new_data, Some(new_header)).unwrap();
        assert_eq!(std::fs::read(&header).unwrap(), b"new header");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn old_header_is_back_where_its_data_stays() {
        let folder = tempfile::tempdir().unwrap();
        let ([data, header], [new_data, new_header]) = replacing(folder.path());
        std::fs::remove_file(new_data.path()).unwrap();
        publish_both(new_data, Some(new_header)).unwrap_err();
        assert_eq!(std::fs::read(&data).unwrap(), b"old data");
        assert_eq!(std::fs::read(&header).unwrap(), b"old header");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
