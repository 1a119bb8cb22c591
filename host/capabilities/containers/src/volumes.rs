//! Named volumes: they outlive a container, and go only when their owner says so.

use std::time::Duration;

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::RemoveVolumeOptions;
use sutler_model::{Call, Effective, Owner};

use crate::capability::writes;
use crate::spec::{check_name, check_note};
use crate::status::{NOTE_LABEL, labels};
use crate::{Containers, Error, Grants, grant};

impl Containers {
    /// The note of a volume of the owner's, or `Conflict` where it is somebody else's.
    async fn look_at_volume(&self, call: &Call, name: &str) -> Result<Option<String>, Error> {
        let asked = self.daemon.client_for(call).await?.inspect_volume(name);
        match self.daemon.bounded(call, &format!("inspect volume {name}"), Duration::ZERO, asked).await {
            Ok(mut found) if found.labels.get(Owner::LABEL) == Some(&call.owner.hash()) => {
                Ok(Some(found.labels.remove(NOTE_LABEL).unwrap_or_default()))
            }
            Ok(_) => Err(Error::Conflict(format!(
                "the name {name} belongs to a volume that is not this application's; remove that volume by hand, or choose another name"
            ))),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn create_volume(&self, call: &Call, name: &str, note: &str) -> Result<(), Error> {
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(labels(call, note)),
            ..VolumeCreateRequest::default()
        };
        let asked = self.daemon.client_for(call).await?.create_volume(request);
        self.daemon.bounded(call, &format!("create volume {name}"), Duration::ZERO, asked).await?;
        // Docker answers what is there: in this moment somebody else may have made it.
        self.look_at_volume(call, name).await.map(drop)
    }

    async fn delete_volume(&self, call: &Call, name: &str) -> Result<(), Error> {
        let asked = self.daemon.client_for(call).await?.remove_volume(name, None::<RemoveVolumeOptions>);
        self.daemon.bounded(call, &format!("remove volume {name}"), Duration::ZERO, asked).await
    }

    /// A volume that a container mounts: the owner's, made where it is absent.
    pub(crate) async fn volume_of_owner(&self, call: &Call, name: &str) -> Result<(), Error> {
        match self.look_at_volume(call, name).await? {
            Some(_) => Ok(()),
            None => self.create_volume(call, name, "").await,
        }
    }

    /// The note of a volume.
    ///
    /// # Errors
    /// `NotGranted`; `NotFound` also for another owner's; what the daemon says.
    pub async fn volume(&self, call: &Call, grants: &Effective<Grants>, name: &str) -> Result<String, Error> {
        check_name(name)?;
        grant::volume(grants, name, &call.owner)?;
        match self.look_at_volume(call, name).await {
            Ok(Some(note)) => Ok(note),
            Ok(None) | Err(Error::Conflict(_)) => Err(Error::NotFound),
            Err(e) => Err(e),
        }
    }

    /// Makes a volume, or an empty one in the place of one with another note.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`; `Conflict` where it is another owner's or in use; what the daemon says.
    pub async fn make_volume(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        name: &str,
        note: &str,
    ) -> Result<(), Error> {
        writes(call)?;
        check_name(name)?;
        check_note(note)?;
        grant::volume(grants, name, &call.owner)?;
        match self.look_at_volume(call, name).await? {
            Some(found) if found == note => return Ok(()),
            Some(_) => self.delete_volume(call, name).await?,
            None => {}
        }
        self.create_volume(call, name, note).await
    }

    /// Takes a volume away with all that is in it.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `NotFound`; `Conflict` while a container uses it; what the daemon says.
    pub async fn remove_volume(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        name: &str,
    ) -> Result<(), Error> {
        writes(call)?;
        check_name(name)?;
        grant::volume(grants, name, &call.owner)?;
        match self.look_at_volume(call, name).await {
            Ok(Some(_)) => self.delete_volume(call, name).await,
            Ok(None) | Err(Error::Conflict(_)) => Err(Error::NotFound),
            Err(e) => Err(e),
        }
    }
}
