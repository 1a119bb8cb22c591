//! Running a container: the same however often it is asked and wherever it was cut off.

use std::collections::BTreeSet;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::query_parameters::{
    ContainerArchiveInfoOptions, CreateContainerOptions, DownloadFromContainerOptions, InspectNetworkOptions,
    StartContainerOptions, UploadToContainerOptions,
};
use futures::StreamExt as _;
use sutler_model::{Call, Effective};

use crate::capability::{Named, writes};
use crate::daemon::labelled;
use crate::files::{User, above, archive};
use crate::status::{Found, SPEC_LABEL, labels};
use crate::{Containers, Error, Grants, Image, Login, Restart, Spec, body, grant};

/// How long a call waits for a pull before it answers `pulling`.
const PATIENCE: Duration = Duration::from_secs(5);
/// /etc/passwd is not larger.
const MOST_PASSWD: usize = 1 << 20;

/// A spec that was checked, and what follows from it.
struct Asked<'a> {
    spec: &'a Spec,
    image: Image,
    public: bool,
    hash: String,
}

impl Containers {
    fn asked<'a>(&self, call: &Call, grants: &Effective<Grants>, spec: &'a Spec) -> Result<Asked<'a>, Error> {
        let image = spec.check()?;
        grant::run(grants, spec, &image, &call.owner)?;
        for mount in &spec.mounts {
            grant::volume(grants, &mount.volume, &call.owner)?;
        }
        let public = grant::public(grants);
        let hash = spec.hash(&image, public);
        Ok(Asked { spec, image, public, hash })
    }

    /// Whether there is a container and [`Containers::run`] would leave it alone.
    ///
    /// # Errors
    /// `NotGranted`, `Other` with code `invalid`, and what the daemon says.
    pub async fn same(&self, call: &Call, grants: &Effective<Grants>, spec: &Spec) -> Result<bool, Error> {
        let asked = self.asked(call, grants, spec)?;
        Ok(match self.look(call, &spec.name).await? {
            Named::Ours(found) => found.status.spec_hash == asked.hash && found.is_as_wanted(spec),
            Named::Nobody | Named::Foreign => false,
        })
    }

    /// Makes the container be as the spec says and run. One with an equal spec is left alone, or started where it was
    /// stopped; one with another spec is replaced, and gets `grace` to end. A job that has ended is not run again.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`; `Conflict` where another owner or nobody has the name; `Other` with the codes
    /// `pulling`, `image`, `invalid` and `daemon`.
    pub async fn run(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        spec: &Spec,
        grace: Duration,
    ) -> Result<(), Error> {
        writes(call)?;
        let asked = self.asked(call, grants, spec)?;
        let found = match self.look(call, &spec.name).await? {
            Named::Foreign => return Err(foreign(&spec.name)),
            Named::Ours(found) => Some(found),
            Named::Nobody => None,
        };
        if let Some(found) = found.as_ref().filter(|f| f.status.spec_hash == asked.hash) {
            if found.created {
                return self.fill_and_start(call, &asked, &found.id).await;
            }
            return if found.is_as_wanted(spec) { Ok(()) } else { self.start(call, spec, &found.id).await };
        }
        // Before anything is taken away: what is new has to be there.
        self.image(call, &asked.image).await?;
        self.network(call, spec.network()).await?;
        let id = if let Some(found) = found {
            self.volumes_of(call, spec).await?;
            if !found.created {
                self.end(call, &found, grace).await?;
            }
            self.take_away(call, &found).await?;
            self.create(call, &asked).await?
        } else {
            // Until it is there to be counted.
            let _alone = self.making.lock().await;
            grant::one_more(grants, self.beside(call).await?)?;
            self.volumes_of(call, spec).await?;
            self.create(call, &asked).await?
        };
        self.fill_and_start(call, &asked, &id).await
    }

    async fn volumes_of(&self, call: &Call, spec: &Spec) -> Result<(), Error> {
        for mount in &spec.mounts {
            self.volume_of_owner(call, &mount.volume).await?;
        }
        Ok(())
    }

    async fn network(&self, call: &Call, name: &str) -> Result<(), Error> {
        let docker = self.daemon.client_for(call).await?;
        let asked = docker.inspect_network(name, None::<InspectNetworkOptions>);
        match self.daemon.bounded(call, &format!("inspect network {name}"), Duration::ZERO, asked).await {
            Ok(_) => Ok(()),
            Err(Error::NotFound) => Err(Error::invalid(format!(
                "Docker knows no network {name}; make it with `docker network create {name}`, or name another one"
            ))),
            Err(e) => Err(e),
        }
    }

    /// How many containers the plugin has for the call's tenant and instance.
    async fn beside(&self, call: &Call) -> Result<u32, Error> {
        let labels = call.owner.labels(&call.plugin);
        let same = ["sutler.dev/plugin", "sutler.dev/tenant", "sutler.dev/instance"];
        let given: Vec<String> =
            same.iter().filter_map(|key| labels.get(*key).map(|value| format!("{key}={value}"))).collect();
        let asked = self.daemon.client_for(call).await?.list_containers(Some(labelled(&given)));
        let found = self.daemon.bounded(call, "list containers", Duration::ZERO, asked).await?;
        // A label that the call lacks is one that the others must lack, too.
        let alike = found.iter().filter(|c| {
            let has = |key: &&str| c.labels.as_ref().is_some_and(|l| l.contains_key(*key));
            same.iter().filter(|key| !labels.contains_key(**key)).all(|key| !has(key))
        });
        Ok(u32::try_from(alike.count()).unwrap_or(u32::MAX))
    }

    /// Pulls what is not there.
    async fn image(&self, call: &Call, image: &Image) -> Result<(), Error> {
        let docker = self.daemon.client_for(call).await?;
        let name = image.pinned();
        let asked = docker.inspect_image(&name);
        match self.daemon.bounded(call, &format!("inspect image {name}"), Duration::ZERO, asked).await {
            Ok(_) => return Ok(()),
            Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
        let login = self.logins.login(image.host()).await.map_err(|why| Error::Other {
            code: "image",
            message: format!("the credentials for {} cannot be used: {why}", image.host()),
        })?;
        let longest = Duration::from_secs(self.daemon.config().pull_seconds);
        let patience = PATIENCE.min(call.left() / 2);
        self.pulls.wait(docker, image, login.map(|l| credentials(l, image.host())), longest, patience).await
    }

    async fn create(&self, call: &Call, asked: &Asked<'_>) -> Result<String, Error> {
        let name = &asked.spec.name;
        let mut labels = labels(call, &asked.spec.note);
        labels.insert(SPEC_LABEL.into(), asked.hash.clone());
        let body = body::of(asked.spec, &asked.image.pinned(), labels, asked.public);
        let options =
            CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
        let made = self.daemon.client_for(call).await?.create_container(Some(options), body);
        match self.daemon.bounded(call, &format!("create container {name}"), Duration::ZERO, made).await {
            Ok(made) => Ok(made.id),
            // The image went, or the network is none; somebody took the name in this moment.
            Err(Error::NotFound) => Err(Error::invalid(format!(
                "Docker knows no image {} or no network {}",
                asked.image,
                asked.spec.network()
            ))),
            Err(e) => Err(e),
        }
    }

    async fn fill_and_start(&self, call: &Call, asked: &Asked<'_>, id: &str) -> Result<(), Error> {
        let spec = asked.spec;
        if !spec.files.is_empty() || !spec.mounts.is_empty() {
            let needed = spec.files.iter().any(|f| f.secret) || !spec.mounts.is_empty();
            let user = if needed { self.user(call, asked, id).await? } else { User::ROOT };
            let missing = self.missing(call, spec, id).await?;
            let archive = archive(spec, user, &missing)?;
            let options =
                UploadToContainerOptions { path: "/".into(), ..UploadToContainerOptions::default() };
            let put = self.daemon.client_for(call).await?.upload_to_container(
                id,
                Some(options),
                bollard::body_full(archive.into()),
            );
            self.daemon.bounded(call, &format!("put files into {}", spec.name), Duration::ZERO, put).await?;
        }
        self.start(call, spec, id).await
    }

    async fn start(&self, call: &Call, spec: &Spec, id: &str) -> Result<(), Error> {
        let asked = self.daemon.client_for(call).await?.start_container(id, None::<StartContainerOptions>);
        self.daemon.bounded(call, &format!("start container {}", spec.name), Duration::ZERO, asked).await
    }

    /// Who the image's process is.
    async fn user(&self, call: &Call, asked: &Asked<'_>, id: &str) -> Result<User, Error> {
        let name = asked.image.pinned();
        let docker = self.daemon.client_for(call).await?;
        let doing = format!("inspect image {name}");
        let found = self.daemon.bounded(call, &doing, Duration::ZERO, docker.inspect_image(&name)).await?;
        let text = found.config.and_then(|c| c.user).unwrap_or_default();
        if let Some(user) = User::numeric(&text) {
            return Ok(user);
        }
        let options = DownloadFromContainerOptions { path: "/etc/passwd".into() };
        let mut chunks = docker.download_from_container(id, Some(options));
        let read = async {
            let mut tar = Vec::new();
            while let Some(chunk) = chunks.next().await {
                tar.extend_from_slice(&chunk?);
                if tar.len() > MOST_PASSWD {
                    break;
                }
            }
            Ok(tar)
        };
        let tar =
            self.daemon.bounded(call, &format!("read /etc/passwd of {name}"), Duration::ZERO, read).await;
        let passwd = tar.map(|t| first_file(&t)).unwrap_or_default();
        User::named(&text, &passwd).ok_or_else(|| {
            Error::invalid(format!(
                "image {name} runs as {text:?}, whose number is not known, so no file can be its alone; name the user by number in the image"
            ))
        })
    }

    /// The folders that the files need and the image lacks.
    async fn missing(&self, call: &Call, spec: &Spec, id: &str) -> Result<BTreeSet<String>, Error> {
        let paths =
            spec.files.iter().map(|f| f.path.as_str()).chain(spec.mounts.iter().map(|m| m.path.as_str()));
        let folders: BTreeSet<&str> = paths.flat_map(above).collect();
        let mounted = |f: &str| spec.mounts.iter().any(|m| m.path == f);
        let mut out: BTreeSet<String> = BTreeSet::new();
        for folder in folders.into_iter().filter(|f| !mounted(f)) {
            // Nothing is in a folder that is not there.
            if !above(folder).any(|f| out.contains(f)) {
                let options = ContainerArchiveInfoOptions { path: folder.to_owned() };
                let asked = self.daemon.client_for(call).await?.get_container_archive_info(id, Some(options));
                match self
                    .daemon
                    .bounded(call, &format!("look for {folder} in {}", spec.name), Duration::ZERO, asked)
                    .await
                {
                    Ok(_) => continue,
                    Err(Error::NotFound) => {}
                    Err(e) => return Err(e),
                }
            }
            out.insert(folder.to_owned());
        }
        Ok(out)
    }
}

impl Found {
    /// It runs, or it is a job that was started.
    fn is_as_wanted(&self, spec: &Spec) -> bool {
        let s = &self.status;
        !self.created && (s.running || s.restarting || spec.restart == Restart::Never)
    }
}

fn foreign(name: &str) -> Error {
    Error::Conflict(format!(
        "the name {name} belongs to a container that is not this application's; choose another name, or remove that container by hand"
    ))
}

fn credentials(login: Login, host: &str) -> DockerCredentials {
    let mut out = DockerCredentials { serveraddress: Some(host.to_owned()), ..DockerCredentials::default() };
    match login {
        Login::Basic { username, password } => {
            out.username = Some(username);
            out.password = Some(password.expose().to_owned());
        }
        Login::Identity(token) => out.identitytoken = Some(token.expose().to_owned()),
        Login::Token(token) => out.registrytoken = Some(token.expose().to_owned()),
    }
    out
}

/// The text of a tar's first file.
fn first_file(bytes: &[u8]) -> String {
    use std::io::Read as _;
    let mut archive = tar::Archive::new(bytes);
    let mut text = String::new();
    if let Some(Ok(mut entry)) = archive.entries().ok().and_then(|mut e| e.next()) {
        // A part is enough where the rest was not read.
        let _ = entry.read_to_string(&mut text);
    }
    text
}
